// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
)

// resetPeak is what clear_refs wants, by proc_pid_clear_refs(5).
const resetPeak = "5"

// Usage is what whole processes used, summed up.
type Usage struct {
	// CPU is user and system time since the processes started, in steps of 10 ms,
	// all threads included. So a round should take much more than that.
	CPU time.Duration
	// Resident is the resident memory in bytes, shared pages included.
	Resident int64
	// Peak is the sum of the highest resident memory of each process, in bytes,
	// since it started or since ResetPeak. The peaks need not be at the same time.
	Peak int64
}

// Since is the usage since an earlier one of the same lives of the same processes:
// the CPU between both, the memory of the later one.
func (u Usage) Since(earlier Usage) Usage {
	u.CPU -= earlier.CPU
	return u
}

// Processes reads the usage of processes. A process that has ended is an error.
func Processes(pids ...int) (Usage, error) {
	var sum Usage
	for _, pid := range pids {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return Usage{}, fmt.Errorf("finding process %d: %w", pid, err)
		}
		stat, err := process.Stat()
		if err != nil {
			return Usage{}, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
		}
		status, err := process.NewStatus()
		if err != nil {
			return Usage{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
		}
		sum.CPU += time.Duration(stat.CPUTime() * float64(time.Second)).Round(time.Millisecond)
		sum.Resident += int64(status.VmRSS)
		sum.Peak += int64(status.VmHWM)
	}
	return sum, nil
}

// Self is the usage of this process, the load generator.
func Self() (Usage, error) { return Processes(os.Getpid()) }

// ResetPeak makes Peak begin again at the present resident memory. The processes
// must belong to the caller's user.
func ResetPeak(pids ...int) error {
	for _, pid := range pids {
		file := filepath.Join("/proc", strconv.Itoa(pid), "clear_refs")
		if err := os.WriteFile(file, []byte(resetPeak), 0); err != nil {
			return fmt.Errorf("resetting the peak memory of process %d: %w", pid, err)
		}
	}
	return nil
}
