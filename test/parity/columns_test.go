// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const tableType = "application/json;as=Table;v=v1;g=meta.k8s.io"

// table decodes a Table.
func (r *response) table() *metav1.Table {
	r.t.Helper()
	return decodeTable(r, r.body)
}

func decodeTable(r *response, data []byte) *metav1.Table {
	r.t.Helper()
	table := &metav1.Table{}
	if err := json.Unmarshal(data, table); err != nil || table.Kind != "Table" {
		r.t.Fatalf("%s: no Table: %.500s", r.name, data)
	}
	return table
}

func columnsOf(table *metav1.Table) []string {
	names := make([]string, 0, len(table.ColumnDefinitions))
	for _, column := range table.ColumnDefinitions {
		names = append(names, fmt.Sprintf("%s:%d", column.Name, column.Priority))
	}
	return names
}

func (r *response) wantColumns(table *metav1.Table, names ...string) {
	r.t.Helper()
	if got := columnsOf(table); !slices.Equal(got, names) {
		r.t.Errorf("%s: columns %v, want %v", r.name, got, names)
	}
}

// TestTableColumns reproduces kubernetes/kubernetes 65196 and 66538: GET, LIST and WATCH as a table
// have the columns of the CRD, with their priorities.
func TestTableColumns(t *testing.T) {
	want := []string{"Name:0", "Color:0", "Size:1", "Ready:0", "Since:0"}
	compare(t, func(s *session) {
		since := s.now()
		s.do("create", http.MethodPost, s.gadgets(), gadget("g", `{"color":"red","size":3}`)).want(http.StatusCreated)
		s.do("create without fields", http.MethodPost, s.gadgets(), gadget("bare", `{}`)).want(http.StatusCreated)
		s.do("condition", http.MethodPatch, s.gadgets()+"/g/status", `{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Other","status":"False"}]}}`, "Content-Type", mergePatch).want(http.StatusOK)

		for _, query := range []string{"", "/g", "?limit=1", "?resourceVersion=0", "?labelSelector=a%3Db", "?includeObject=None", "?includeObject=Object", "?includeObject=Metadata"} {
			got := s.do("table of "+query, http.MethodGet, s.gadgets()+query, "", "Accept", tableType).want(http.StatusOK)
			table := got.table()
			got.wantColumns(table, want...)
			if table.ResourceVersion == "" {
				s.t.Errorf("%s: no resource version", got.name)
			}
		}
		s.do("table with an odd object", http.MethodGet, s.gadgets()+"?includeObject=All", "", "Accept", tableType)
		s.do("table of another version", http.MethodGet, s.gadgets(), "", "Accept", "application/json;as=Table;v=v2;g=meta.k8s.io")
		s.do("v1beta1 table", http.MethodGet, s.gadgets(), "", "Accept", "application/json;as=Table;v=v1beta1;g=meta.k8s.io").want(http.StatusOK)
		list := s.do("rows", http.MethodGet, s.gadgets(), "", "Accept", tableType).table()
		for _, row := range list.Rows {
			if cells := fmt.Sprint(row.Cells[:4]); cells != "[g red 3 True]" && cells != "[bare <nil> <nil> <nil>]" {
				s.t.Errorf("row has the cells %s", cells)
			}
		}
		events := s.eventsSince("watch as table", since, "Accept", tableType)
		if len(events) != 3 {
			s.t.Fatalf("the watch as table has %d events, want 3", len(events))
		}
		first := &response{t: s.t, name: "first event"}
		first.wantColumns(decodeTable(first, events[0].Object), want...)
		partial := s.eventsSince("watch as metadata", since, "Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
		if !strings.Contains(string(partial[0].Object), `"kind":"PartialObjectMetadata"`) {
			s.t.Errorf("the watch as metadata begins with %s", partial[0].Object)
		}

		s.kubectl("kubectl get", "", "get", "gadgets.lab.annex.test", "g", "bare")
		wide := s.kubectl("kubectl get -o wide", "", "get", "gadgets.lab.annex.test", "g", "bare", "-o", "wide")
		if !strings.Contains(wide.Stdout, "SIZE") {
			s.t.Errorf("kubectl get -o wide prints %s", wide.Stdout)
		}
		s.kubectl("kubectl get -A", "", "get", "gadgets.lab.annex.test", "-A", "--field-selector=metadata.namespace="+s.namespace)
		s.watchByKubectl("kubectl get -w")
		s.watchByKubectl("kubectl get -w -o wide", "-o", "wide")
	})
}

// watchByKubectl keeps the header and the first two rows of kubectl get -w.
func (s *session) watchByKubectl(name string, args ...string) {
	s.t.Helper()
	args = append([]string{"get", s.forward("gadgets.lab.annex.test"), "-w", "--field-selector=metadata.name=g"}, args...)
	stream, err := s.target.kubectl.InNamespace(s.namespace).Stream(s.t.Context(), args...)
	if err != nil {
		s.t.Fatal(err)
	}
	defer stream.Close()
	lines, err := stream.Take(s.t.Context(), 2)
	if err != nil {
		s.t.Fatal(err)
	}
	s.ask(s.target.api, "change", http.MethodPatch, s.gadgets()+"/g", `{"spec":{"color":"`+strings.ToLower(notInNames.ReplaceAllString(name, ""))+`"}}`, "Content-Type", mergePatch).want(http.StatusOK)
	more, err := stream.Take(s.t.Context(), 1)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, line := range append(lines, more...) {
		// The last cell is an age.
		fields := strings.Fields(line)
		s.steps = append(s.steps, step{Name: name, Body: strings.Join(fields[:len(fields)-1], " ")})
	}
}

// TestTableOfOddObjects reproduces kubernetes/kubernetes 65196 and 66538: a column that finds
// nothing, a list or a value of another type never fails the table.
func TestTableOfOddObjects(t *testing.T) {
	const schema = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	const columns = `,"additionalPrinterColumns":[
		{"name":"App","type":"string","jsonPath":".metadata.labels.app\\.kubernetes\\.io/name"},
		{"name":"Absent","type":"string","jsonPath":".spec.absent.deep"},
		{"name":"List","type":"string","jsonPath":".spec.list"},
		{"name":"Each","type":"string","jsonPath":".spec.list[*].name"},
		{"name":"Third","type":"string","jsonPath":".spec.list[2].name"},
		{"name":"Map","type":"string","jsonPath":".spec.map"},
		{"name":"Count","type":"integer","jsonPath":".spec.count","priority":1},
		{"name":"Share","type":"number","jsonPath":".spec.share"},
		{"name":"On","type":"boolean","jsonPath":".spec.on"},
		{"name":"When","type":"date","jsonPath":".spec.when"}]`
	// The aggregator needs a minute to show kubectl a new kind.
	compareAt(t, []*target{suite.hostTarget, suite.annexTarget}, func(s *session) {
		s.install("oddities", definition("oddities", "Oddity", schema, columns))
		for name, spec := range map[string]string{
			"a-sound":     `{"list":[{"name":"x"},{"name":"y"},{"name":"z"}],"map":{"k":1},"count":3,"share":0.5,"on":true,"when":"2020-01-02T03:04:05Z"}`,
			"b-empty":     `{}`,
			"c-wrong":     `{"list":"text","map":[1,2],"count":"three","share":"half","on":"yes","when":"yesterday"}`,
			"d-null":      `{"list":null,"map":null,"count":null,"when":null}`,
			"e-fractions": `{"count":1.5,"share":7,"on":0,"when":1577934245}`,
			"f-numbers":   `{"count":9223372036854775807,"list":[],"map":{}}`,
		} {
			s.ask(s.target.api, "create "+name, http.MethodPost, s.of("oddities"), object("Oddity", name, spec)).want(http.StatusCreated)
		}
		s.do("label", http.MethodPatch, s.of("oddities")+"/a-sound", `{"metadata":{"labels":{"app.kubernetes.io/name":"web"}}}`, "Content-Type", mergePatch).want(http.StatusOK)
		got := s.do("table", http.MethodGet, s.of("oddities"), "", "Accept", tableType).want(http.StatusOK)
		table := got.table()
		got.wantColumns(table, "Name:0", "App:0", "Absent:0", "List:0", "Each:0", "Third:0", "Map:0", "Count:1", "Share:0", "On:0", "When:0")
		if len(table.Rows) != 6 {
			s.t.Fatalf("table has %d rows, want 6", len(table.Rows))
		}
		if cells := fmt.Sprint(table.Rows[0].Cells[:3]); cells != "[a-sound web <nil>]" {
			s.t.Errorf("the first row begins with %s", cells)
		}
		s.kubectl("kubectl get -o wide", "", "get", "oddities.lab.annex.test", "-o", "wide")
	})
}

// TestColumnsOfVersions reproduces kubernetes/kubernetes 65196 and 66538: the requested version
// decides, and a change of the columns ends watches that show the old ones.
func TestColumnsOfVersions(t *testing.T) {
	const schema = `{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}}}`
	second := fmt.Sprintf(`,"additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":".spec.a"}]},
		{"name":"v1beta1","served":true,"storage":false,"schema":{"openAPIV3Schema":%s},
		"additionalPrinterColumns":[{"name":"B","type":"string","jsonPath":".spec.b","priority":1}]`, schema)
	compare(t, func(s *session) {
		beta := strings.Replace(s.of("frames"), "/v1/", "/v1beta1/", 1)
		s.install("frames", definition("frames", "Frame", schema, second))
		s.do("create", http.MethodPost, s.of("frames"), object("Frame", "f", `{"a":"1","b":"2"}`)).want(http.StatusCreated)
		one := s.do("v1", http.MethodGet, s.of("frames"), "", "Accept", tableType).want(http.StatusOK)
		one.wantColumns(one.table(), "Name:0", "A:0")
		two := s.do("v1beta1", http.MethodGet, beta, "", "Accept", tableType).want(http.StatusOK)
		two.wantColumns(two.table(), "Name:0", "B:1")

		watch, err := s.open(s.t.Context(), s.target.api, http.MethodGet, s.of("frames")+"?watch=1&timeoutSeconds=30", "", "Accept", tableType)
		if err != nil {
			s.t.Fatal(err)
		}
		defer watch.Body.Close()
		frames := json.NewDecoder(watch.Body)
		var next event
		if err := frames.Decode(&next); err != nil {
			s.t.Fatal(err)
		}
		first := &response{t: s.t, name: "watch before"}
		first.wantColumns(decodeTable(first, next.Object), "Name:0", "A:0")
		s.ask(s.target.crds, "change columns", http.MethodPatch, definitions+"/frames.lab.annex.test",
			`[{"op":"replace","path":"/spec/versions/0/additionalPrinterColumns/0","value":{"name":"New","type":"string","jsonPath":".spec.b"}}]`, "Content-Type", jsonPatch).want(http.StatusOK)
		s.until("new columns", func() bool {
			return strings.Contains(string(s.ask(s.target.api, "probe", http.MethodGet, s.of("frames"), "", "Accept", tableType).body), `"name":"New"`)
		})
		// The storage of the old definition is torn down, and its watches with it.
		for frames.Decode(&next) == nil {
			s.t.Errorf("the old watch goes on with %s %s", next.Type, next.Object)
		}
		s.do("v1 after", http.MethodGet, s.of("frames"), "", "Accept", tableType).want(http.StatusOK)
		s.do("v1beta1 after", http.MethodGet, beta, "", "Accept", tableType).want(http.StatusOK)
	})
}
