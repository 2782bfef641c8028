// Goroutines on four processors: a pool of workers, a pipeline of channels, locks, a context that ends, timers.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func pool() {
	jobs, results := make(chan int), make(chan [2]int)
	var group sync.WaitGroup
	for n := 0; n < 8; n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for job := range jobs {
				sum := sha256.Sum256([]byte(fmt.Sprint(job)))
				results <- [2]int{job, int(sum[0])<<8 | int(sum[1])}
			}
		}()
	}
	go func() {
		for n := 0; n < 200; n++ {
			jobs <- n
		}
		close(jobs)
		group.Wait()
		close(results)
	}()
	total := 0
	for result := range results {
		total += result[0] * result[1]
	}
	fmt.Println("pool", total)
}

func pipeline() {
	source := make(chan int)
	go func(to chan<- int) {
		for n := 2; n < 2000; n++ {
			to <- n
		}
		close(to)
	}(source)
	count, last := 0, 0
	for {
		prime, more := <-source
		if !more {
			break
		}
		count, last = count+1, prime
		if prime > 44 {
			continue
		}
		to := make(chan int)
		go func(from <-chan int, to chan<- int) {
			for n := range from {
				if n%prime != 0 {
					to <- n
				}
			}
			close(to)
		}(source, to)
		source = to
	}
	fmt.Println("primes", count, last)
}

func locks() {
	var lock sync.Mutex
	var group sync.WaitGroup
	var atomics atomic.Int64
	count := 0
	for n := 0; n < 50; n++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			for round := 0; round < 100; round++ {
				lock.Lock()
				count++
				lock.Unlock()
				atomics.Add(int64(n))
				if round%25 == 0 {
					runtime.Gosched()
				}
			}
		}(n)
	}
	group.Wait()
	fmt.Println("locks", count, atomics.Load())
}

// A loop that never calls is preempted by a signal of the runtime.
func spinning() {
	var stop atomic.Bool
	var group sync.WaitGroup
	for n := 0; n < 4; n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for !stop.Load() {
			}
		}()
	}
	time.Sleep(20 * time.Millisecond)
	runtime.GC()
	stop.Store(true)
	group.Wait()
	fmt.Println("spun")
}

func main() {
	fmt.Println("processors", runtime.GOMAXPROCS(0))
	pool()
	pipeline()
	locks()
	spinning()
	ended, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	<-ended.Done()
	fmt.Println(ended.Err())
}
