// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// kernelFile holds the release of the kernel.
const kernelFile = "/proc/sys/kernel/osrelease"

// Environment is all that someone needs to judge the numbers and to repeat them.
type Environment struct {
	Date time.Time `json:"date"`
	// Command repeats the run in a checkout of the repository.
	Command string  `json:"command"`
	Machine Machine `json:"machine"`
	// Versions are of the programs that were measured.
	Versions []Item `json:"versions"`
	// Sizes are the numbers and sizes of objects, nodes, clients and rounds.
	Sizes []Item `json:"sizes"`
	// Options are those that change what is measured, or how often, as far as they are not the default.
	Options string `json:"options,omitempty"`
	// Incomplete says why results are missing and which. It is empty when none are.
	Incomplete string `json:"incomplete,omitempty"`
}

// Item is a line of the report.
type Item struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Machine is where servers and clients ran.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	// Memory is in bytes.
	Memory int64  `json:"memory"`
	Kernel string `json:"kernel"`
	// Go is the version of the compiler and the platform.
	Go string `json:"go"`
}

// ThisMachine asks the operating system.
func ThisMachine() (Machine, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return Machine{}, fmt.Errorf("opening /proc: %w", err)
	}
	cpus, err := proc.CPUInfo()
	if err != nil {
		return Machine{}, fmt.Errorf("reading the model of the CPU: %w", err)
	}
	if len(cpus) == 0 {
		return Machine{}, errors.New("/proc/cpuinfo names no CPU")
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return Machine{}, fmt.Errorf("reading the size of the memory: %w", err)
	}
	if memory.MemTotalBytes == nil {
		return Machine{}, errors.New("/proc/meminfo has no total")
	}
	kernel, err := os.ReadFile(kernelFile)
	if err != nil {
		return Machine{}, fmt.Errorf("reading the version of the kernel: %w", err)
	}
	return Machine{
		// Some architectures name no model.
		CPU: cmp.Or(cpus[0].ModelName, "unknown model"), Cores: runtime.NumCPU(), Memory: int64(*memory.MemTotalBytes),
		Kernel: strings.TrimSpace(string(kernel)), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
	}, nil
}

// CommandLine is a command for a shell. program is not quoted: it may be several words.
func CommandLine(program string, args ...string) string {
	words := []string{program}
	for _, arg := range args {
		words = append(words, quote(arg))
	}
	return strings.Join(words, " ")
}

func quote(arg string) string {
	special := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,@%+", r)
	}
	if arg != "" && !strings.ContainsFunc(arg, special) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// items are the lines of the environment section.
func (e Environment) items() []Item {
	machine := e.Machine
	items := []Item{
		{"Date", e.Date.UTC().Format("2006-01-02 15:04 MST")},
		{"Command", "`" + e.Command + "`"},
		{"CPU", fmt.Sprintf("%s, %d cores", machine.CPU, machine.Cores)},
		{"Memory", format(float64(machine.Memory), Bytes)},
		{"Kernel", machine.Kernel},
		{"Go", machine.Go},
	}
	items = append(items, e.Versions...)
	return append(items, e.Sizes...)
}
