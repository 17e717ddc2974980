// 700 MiB of blocks, of which 300 MiB are read twice a second, beside a map and short-lived memory.
package main

import (
	"fmt"
	"time"
)

const (
	slices = 50
	size   = 1 << 20
)

func main() {
	blocks := make([][]byte, 700)
	for i := range blocks {
		blocks[i] = make([]byte, size)
		for at := 0; at < size; at += 4096 {
			blocks[i][at] = byte(i)
		}
	}
	names := map[int]string{}
	for i := 0; i < 50000; i++ {
		names[i] = fmt.Sprint("name ", i)
	}
	sink := 0
	for round := 0; ; round++ {
		for slice := 0; slice < slices; slice++ {
			began := time.Now()
			for block := 0; block < 300; block++ {
				for at := slice * size / slices; at < (slice+1)*size/slices; at += 1024 {
					sink += int(blocks[2*block][at])
				}
			}
			for i := 0; i < 100; i++ {
				young := make([]byte, 2048)
				sink += len(young) + len(names[i])
			}
			time.Sleep(10*time.Millisecond - time.Since(began))
		}
		if round == 5 {
			fmt.Println("ready", sink)
		}
	}
}
