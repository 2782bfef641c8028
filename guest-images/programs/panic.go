// A panic in one of several goroutines: Go's runtime ends the program with status 2.
package main

import (
	"fmt"
	"os"
	"sync"
)

func main() {
	var group sync.WaitGroup
	for n := 0; n < 4; n++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			fmt.Fprintln(os.Stderr, "at work")
		}(n)
	}
	group.Wait()
	defer fmt.Println("deferred")
	values := []int{1, 2, 3}
	fmt.Println(values[len(os.Args)+4])
}
