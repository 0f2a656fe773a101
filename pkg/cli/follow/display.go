// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// Display shows states to a person. It is used by one goroutine.
type Display interface {
	// Show is called with every new state.
	Show(group *kubeannexv1alpha1.AnnexedGroup)
	// Close leaves the last state on the screen.
	Close()
}

// NewDisplay shows bars on a terminal and lines elsewhere.
func NewDisplay(out io.Writer) Display {
	if file, ok := out.(*os.File); ok {
		// A terminal of unknown size has no room for bars.
		if width, height, err := term.GetSize(int(file.Fd())); err == nil && width > 0 && height > 0 {
			return newBars(out)
		}
	}
	return &lines{out: out}
}

// lines writes one line when the phase changes, when something holds it up, and
// for every tenth of the objects.
type lines struct {
	out   io.Writer
	phase string
	tenth int64
}

// Show implements Display.
func (l *lines) Show(group *kubeannexv1alpha1.AnnexedGroup) {
	phase := phaseLine(group, "")
	done, total := sums(group)
	tenth := Percent(done, total) / 10
	counting := Counting(group.Status.Phase) && total > 0
	if phase == l.phase && (tenth == l.tenth || !counting) {
		return
	}
	l.phase, l.tenth = phase, tenth
	if counting {
		phase = phaseLine(group, counts(group))
	}
	fmt.Fprintln(l.out, phase)
}

// Close implements Display.
func (l *lines) Close() {}

func counts(group *kubeannexv1alpha1.AnnexedGroup) string {
	var parts []string
	for i := range group.Status.Resources {
		resource := &group.Status.Resources[i]
		parts = append(parts, fmt.Sprintf("%s %d/%d", resource.Resource, Done(group.Status.Phase, resource), resource.Objects))
	}
	return strings.Join(parts, ", ")
}

// bars are one for each resource, below a line that names the phase.
type bars struct {
	progress *mpb.Progress
	title    *text
	bars     map[string]*bar
}

// text is drawn by another goroutine than the one that sets it.
type text struct {
	*mpb.Bar
	value atomic.Value
}

// bar has the text of its counters, because an empty resource is drawn as a full bar.
type bar struct {
	*mpb.Bar
	counters atomic.Value
}

func newBars(out io.Writer, options ...mpb.ContainerOption) *bars {
	return &bars{progress: mpb.New(append(options, mpb.WithOutput(out))...), bars: map[string]*bar{}}
}

// shown makes a decorator of a value that changes.
func shown(value *atomic.Value, config ...decor.WC) decor.Decorator {
	return decor.Any(func(decor.Statistics) string { return value.Load().(string) }, config...)
}

// cut shortens a line to a width: one that wraps would spoil the picture.
func cut(line string, width int) string {
	if runes := []rune(line); width > 1 && len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return line
}

// Show implements Display.
func (b *bars) Show(group *kubeannexv1alpha1.AnnexedGroup) {
	if b.title == nil {
		b.title = &text{}
		b.title.value.Store("")
		b.title.Bar = b.progress.New(0, mpb.NopStyle(), mpb.BarPriority(-1), mpb.BarFillerTrim(), mpb.PrependDecorators(
			decor.Any(func(s decor.Statistics) string { return cut(b.title.value.Load().(string), s.AvailableWidth) }),
		))
	}
	b.title.value.Store(phaseLine(group, ""))
	for i := range group.Status.Resources {
		resource := &group.Status.Resources[i]
		done := Done(group.Status.Phase, resource)
		row := b.row(resource.Resource, i)
		row.counters.Store(fmt.Sprintf("%d/%d", done, resource.Objects))
		if resource.Objects == 0 {
			row.SetTotal(1, false)
			row.SetCurrent(1)
			continue
		}
		row.SetTotal(resource.Objects, false)
		row.SetCurrent(done)
	}
}

func (b *bars) row(resource string, priority int) *bar {
	if row, found := b.bars[resource]; found {
		return row
	}
	row := &bar{}
	row.counters.Store("")
	row.Bar = b.progress.New(0, mpb.BarStyle(), mpb.BarPriority(priority),
		mpb.PrependDecorators(decor.Name(resource, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(shown(&row.counters, decor.WCSyncSpace)),
	)
	b.bars[resource] = row
	return row
}

// Close implements Display. Bars that end early keep what they show.
func (b *bars) Close() {
	for _, row := range b.bars {
		row.Abort(false)
	}
	if b.title != nil {
		b.title.Abort(false)
	}
	b.progress.Wait()
}
