// Goroutines that talk by channels: a pipeline, select with timeouts, mutexes, a wait group, once, a context that is
// cancelled, a ticker, and a panic that is recovered from.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func numbers(to int) <-chan int {
	out := make(chan int)
	go func() {
		defer close(out)
		for n := 2; n < to; n++ {
			out <- n
		}
	}()
	return out
}

func without(prime int, in <-chan int) <-chan int {
	out := make(chan int)
	go func() {
		defer close(out)
		for n := range in {
			if n%prime != 0 {
				out <- n
			}
		}
	}()
	return out
}

func primes() {
	sieve := numbers(300)
	sum, count := 0, 0
	for count < 30 {
		prime := <-sieve
		sum, count = sum+prime, count+1
		sieve = without(prime, sieve)
	}
	fmt.Println("primes", count, sum)
}

func workers() {
	var group sync.WaitGroup
	var lock sync.Mutex
	var once sync.Once
	var hits int64
	sums := map[int]int{}
	jobs := make(chan int, 16)
	for w := 0; w < 8; w++ {
		group.Add(1)
		go func() {
			defer group.Done()
			once.Do(func() { fmt.Println("once") })
			for job := range jobs {
				atomic.AddInt64(&hits, 1)
				lock.Lock()
				sums[job%10] += job * job
				lock.Unlock()
				if job%100 == 0 {
					runtime.Gosched()
				}
			}
		}()
	}
	for job := 0; job < 1000; job++ {
		jobs <- job
	}
	close(jobs)
	group.Wait()
	fmt.Println("hits", hits, "sums", sums)
}

func timeouts() {
	never, soon := make(chan int), make(chan int)
	go func() {
		time.Sleep(5 * time.Millisecond)
		soon <- 42
	}()
	for n := 0; n < 2; n++ {
		select {
		case <-never:
			fmt.Println("impossible")
		case value := <-soon:
			fmt.Println("soon", value)
		case <-time.After(time.Second):
			fmt.Println("timeout")
		}
	}
	ticks := 0
	ticker := time.NewTicker(time.Millisecond)
	for range ticker.C {
		if ticks++; ticks == 5 {
			ticker.Stop()
			break
		}
	}
	fmt.Println("ticks", ticks)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	fmt.Println(ctx.Err(), errors.Is(ctx.Err(), context.DeadlineExceeded))
}

func pipes() {
	from, to, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	go func() {
		for n := 0; n < 100; n++ {
			fmt.Fprintf(to, "line %d\n", n)
		}
		to.Close()
	}()
	total, buffer := 0, make([]byte, 64)
	for {
		n, err := from.Read(buffer)
		if total += n; err != nil {
			fmt.Println("read", total, err)
			return
		}
	}
}

func recovered() {
	done := make(chan string)
	go func() {
		defer func() { done <- fmt.Sprint("recovered from ", recover()) }()
		var nothing *struct{ field int }
		fmt.Println(nothing.field)
	}()
	fmt.Println(<-done)
}

func garbage() {
	type node struct {
		left, right *node
		value       int
	}
	var build func(depth int) *node
	build = func(depth int) *node {
		if depth == 0 {
			return &node{value: 1}
		}
		return &node{build(depth - 1), build(depth - 1), depth}
	}
	var sum func(at *node) int
	sum = func(at *node) int {
		if at == nil {
			return 0
		}
		return at.value + sum(at.left) + sum(at.right)
	}
	total := 0
	for round := 0; round < 20; round++ {
		total += sum(build(12))
	}
	runtime.GC()
	fmt.Println("trees", total)
}

func main() {
	primes()
	workers()
	timeouts()
	pipes()
	recovered()
	garbage()
	fmt.Println("processors", runtime.GOMAXPROCS(0) > 0)
}
