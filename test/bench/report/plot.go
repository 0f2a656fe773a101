// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of a plot, in points.
const (
	plotWidth  vg.Length = 620
	plotMargin vg.Length = 80
	barWidth   vg.Length = 11
	barGap     vg.Length = 12
	capWidth   vg.Length = 5
	edge       vg.Length = 8
	fontSize   vg.Length = 11
	// legendRow is the height of a side in the legend, which is above the bars.
	legendRow vg.Length = 14

	// fontFamily is how the font is named in a plot.
	fontFamily = "font-family:Liberation Sans"
	// half is the distance of a row to the border of the plot.
	half = 0.5
)

// Plot is a bar chart.
type Plot struct {
	Family string
	// File is a name for it.
	File string
	SVG  []byte
}

// Plots draws one bar chart for each family that has a ratio: how many times better
// than the host each side is, with the spread of the rounds, on a logarithmic axis.
// The same results give the same bytes.
func Plots(results []Result) ([]Plot, error) {
	var plots []Plot
	for _, family := range families(results) {
		selected := slices.DeleteFunc(ofFamily(results, family), func(r Result) bool {
			return len(comparedNames([]Result{r})) == 0
		})
		if len(selected) == 0 {
			continue
		}
		picture, err := chart(family, selected)
		if err != nil {
			return nil, fmt.Errorf("drawing %s: %w", family, err)
		}
		plots = append(plots, Plot{Family: family, File: fileName(family), SVG: picture})
	}
	return plots, nil
}

// fileName keeps letters and digits.
func fileName(family string) string {
	words := strings.FieldsFunc(strings.ToLower(family), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-") + ".svg"
}

func chart(family string, results []Result) ([]byte, error) {
	p, height, err := newPlot(family, results)
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.New(plotWidth, height)
	p.Draw(draw.Crop(draw.New(canvas), edge, -2*edge, 0, -edge))
	var picture bytes.Buffer
	if _, err := canvas.WriteTo(&picture); err != nil {
		return nil, err
	}
	// Browsers need not have the font.
	return bytes.ReplaceAll(picture.Bytes(), []byte(fontFamily), []byte(fontFamily+",Arial,Helvetica,sans-serif")), nil
}

// newPlot returns a plot and its height.
func newPlot(family string, results []Result) (*plot.Plot, vg.Length, error) {
	p := plot.New()
	p.Title.Text = family
	p.X.Label.Text = "times better than " + Baseline + " (logarithmic)"
	p.X.Tick.Marker = plot.TickerFunc(factorTicks)
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
		style.Font.Size = fontSize
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.Add(grid)

	labels := make([]string, len(results))
	for n, result := range results {
		// The first result is on top.
		labels[len(results)-1-n] = result.Scenario + " " + result.Metric
	}
	sides := comparedNames(results)
	legend := vg.Length(len(sides)) * legendRow
	p.X.Padding, p.Y.Padding, p.Title.Padding = edge, edge, edge+legend
	p.Legend.Top, p.Legend.YOffs = true, edge+legend
	for n, side := range sides {
		offset := barWidth * vg.Length(float64(len(sides)-1)/2-float64(n))
		if err := addSide(p, results, side, offset, sideColor(n)); err != nil {
			return nil, 0, err
		}
	}
	p.NominalY(labels...)
	p.Y.Min, p.Y.Max = -half, float64(len(results))-half
	// From half as good to twice as good is always shown.
	p.X.Min, p.X.Max = min(p.X.Min, -1), max(p.X.Max, 1)
	return p, plotMargin + legend + vg.Length(len(results))*(barWidth*vg.Length(len(sides))+barGap), nil
}

// sideColor is of a palette that people with any colour vision tell apart.
func sideColor(n int) color.Color {
	palette := [...]color.RGBA{
		{R: 0, G: 114, B: 178, A: 255}, {R: 230, G: 159, B: 0, A: 255},
		{R: 0, G: 158, B: 115, A: 255}, {R: 204, G: 121, B: 167, A: 255},
	}
	return palette[n%len(palette)]
}

// spread is the bars of a side with their errors. Bars without a ratio have length 0.
type spread struct {
	plotter.XYs
	plotter.XErrors
}

// addSide adds the bars of one side. A bar of a factor f is log2(f) long.
func addSide(p *plot.Plot, results []Result, side string, offset vg.Length, fill color.Color) error {
	values := make(plotter.Values, len(results))
	var errs spread
	for n, result := range results {
		ratio, found := result.Ratio(side)
		if !found {
			continue
		}
		row := len(results) - 1 - n
		length := math.Log2(ratio.Factor)
		values[row] = length
		errs.XYs = append(errs.XYs, plotter.XY{X: length, Y: float64(row)})
		errs.XErrors = append(errs.XErrors, struct{ Low, High float64 }{
			Low: length - math.Log2(ratio.WorstFactor), High: math.Log2(ratio.BestFactor) - length,
		})
	}
	bars, err := plotter.NewBarChart(values, barWidth)
	if err != nil {
		return err
	}
	bars.Horizontal, bars.Offset, bars.Color = true, offset, fill
	bars.LineStyle.Width = 0
	whiskers, err := plotter.NewXErrorBars(errs)
	if err != nil {
		return err
	}
	whiskers.CapWidth = capWidth
	p.Add(bars, shifted{whiskers, offset})
	p.Legend.Add(side, bars)
	return nil
}

// shifted draws whiskers in the middle of bars with an offset.
type shifted struct {
	*plotter.XErrorBars
	offset vg.Length
}

// Plot implements plot.Plotter.
func (s shifted) Plot(c draw.Canvas, p *plot.Plot) {
	c.Push()
	c.Translate(vg.Point{Y: s.offset})
	s.XErrorBars.Plot(c, p)
	c.Pop()
}

// factorTicks are at powers of 2, or of 4 or 16 where there are many.
func factorTicks(low, high float64) []plot.Tick {
	const most = 9
	step := 1.0
	for (high-low)/step > most {
		step *= 2
	}
	var ticks []plot.Tick
	for at := math.Ceil(low/step) * step; at <= high; at += step {
		label := fmt.Sprintf("%gx", math.Exp2(at))
		if at < 0 {
			label = fmt.Sprintf("1/%gx", math.Exp2(-at))
		}
		ticks = append(ticks, plot.Tick{Value: at, Label: label})
	}
	return ticks
}
