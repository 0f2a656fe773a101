// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeannex/annex/test/env"
)

const (
	fixturePath = "/apis/" + env.FixtureGroup + "/v1"
	jsonType    = "application/json"
	mergePatch  = "application/merge-patch+json"
	jsonPatch   = "application/json-patch+json"
	applyPatch  = "application/apply-patch+yaml"
	// longestText is how many bytes of a body a comparison shows; the rest is
	// compared by a digest.
	longestText = 8 << 10
)

// session sends requests to one target and keeps the answers for the comparison.
type session struct {
	t      *testing.T
	target *target
	// namespace has the same name at every target of a test.
	namespace string
	steps     []step
	watches   int
}

// step is an answer in the form that has to be equal everywhere.
type step struct {
	Name   string
	Code   int
	Header map[string][]string
	Body   string
}

// response is an answer that has been read to its end.
type response struct {
	t      *testing.T
	name   string
	code   int
	header http.Header
	body   []byte
}

// compare runs a script against the host, annex and annex behind the aggregator
// and demands the same answers to all its requests.
func compare(t *testing.T, script func(*session)) {
	t.Helper()
	compareAt(t, []*target{suite.hostTarget, suite.annexTarget, suite.viaTarget}, script)
}

// compareAt is compare for other targets; the first is the judge.
func compareAt(t *testing.T, targets []*target, script func(*session)) {
	t.Helper()
	namespace := namespaceOf(t)
	if err := env.EnsureNamespace(t.Context(), suite.hostTarget.api.config, namespace); err != nil {
		t.Fatal(err)
	}
	sessions := make([]*session, len(targets))
	t.Run("asked", func(t *testing.T) {
		for i, target := range targets {
			t.Run(target.name, func(t *testing.T) {
				t.Parallel()
				sessions[i] = &session{t: t, target: target, namespace: namespace}
				script(sessions[i])
			})
		}
	})
	for _, s := range sessions[1:] {
		if s == nil || sessions[0] == nil {
			continue // -run chose another target
		}
		compareSteps(t, s.target.name, sessions[0].steps, s.steps)
	}
}

func compareSteps(t *testing.T, name string, want, got []step) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%s was asked %d times, kube-apiserver %d times", name, len(got), len(want))
		return
	}
	for i := range want {
		if diff := cmp.Diff(want[i], got[i]); diff != "" {
			t.Errorf("%s: %s differs from kube-apiserver (-kube-apiserver +annex):\n%s", want[i].Name, name, diff)
		}
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func namespaceOf(t *testing.T) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	return name[:min(len(name), 63)]
}

// gadgets is the path of the gadgets in the namespace of the session.
func (s *session) gadgets() string { return s.of("gadgets") }

// of is the path of a namespaced resource of the fixture group.
func (s *session) of(resource string) string {
	return fixturePath + "/namespaces/" + s.namespace + "/" + resource
}

// do sends a request. Header pairs follow the body; a body is JSON unless they
// say otherwise, and "-" leaves a header out.
func (s *session) do(name, method, path, body string, header ...string) *response {
	s.t.Helper()
	return s.keep(s.ask(s.target.api, name, method, path, body, header...))
}

// peek is do for an answer that is not compared.
func (s *session) peek(method, path string) *response {
	s.t.Helper()
	return s.ask(s.target.api, method+" "+path, method, path, "")
}

func (s *session) ask(point *endpoint, name, method, path, body string, header ...string) *response {
	s.t.Helper()
	answer, err := s.open(s.t.Context(), point, method, path, body, header...)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatalf("%s: reading the answer: %v", name, err)
	}
	return &response{t: s.t, name: name, code: answer.StatusCode, header: answer.Header, body: s.backward(data)}
}

func (s *session) open(ctx context.Context, point *endpoint, method, path, body string, header ...string) (*http.Response, error) {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(s.forward(body))
	}
	request, err := http.NewRequestWithContext(ctx, method, point.config.Host+s.forward(path), content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", jsonType)
	if body != "" {
		request.Header.Set("Content-Type", jsonType)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "-" {
			request.Header.Del(header[i])
			continue
		}
		request.Header.Set(header[i], header[i+1])
	}
	return point.client.Do(request)
}

// forward puts the group of the target in place of the fixture's, backward undoes it.
func (s *session) forward(text string) string {
	return strings.ReplaceAll(text, env.FixtureGroup, s.target.group)
}

func (s *session) backward(text []byte) []byte {
	if s.target.group == env.FixtureGroup {
		return text
	}
	// Errors of the YAML parser quote the body in hexadecimal digits.
	return []byte(strings.NewReplacer(
		s.target.group, env.FixtureGroup,
		fmt.Sprintf("%x", s.target.group), fmt.Sprintf("%x", env.FixtureGroup),
	).Replace(string(text)))
}

func (s *session) keep(r *response) *response {
	header := map[string][]string{}
	for _, name := range []string{"Content-Type", "Cache-Control", "Retry-After", "Warning", "Allow", "Accept-Patch", "Location"} {
		if values := r.header.Values(name); len(values) > 0 {
			// The aggregator adds its own Cache-Control to that of the server behind it.
			header[name] = slices.Compact(values)
		}
	}
	body := normalise(r.body)
	if r.code/100 == 2 && strings.HasPrefix(r.header.Get("Content-Type"), protobufType) {
		// The lengths in it depend on the resource version.
		body = ""
	}
	s.steps = append(s.steps, step{Name: r.name, Code: r.code, Header: header, Body: body})
	return r
}

var (
	// variable finds what differs between any two writes, in JSON, in quoted JSON and in YAML.
	variable = regexp.MustCompile(`\b(uid|resourceVersion|creationTimestamp|deletionTimestamp|time|lastTransitionTime|continue)(\\*"?: ?\\*"?)[0-9a-zA-Z:_-]+`)
	anyUID   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// inRecord is the version that a failed precondition names.
	inRecord = regexp.MustCompile(`(in record )\([0-9]+\)`)
	// inDiff is what kubectl diff says about its files.
	inDiff = regexp.MustCompile(`(LIVE|MERGED)-[0-9]+|\t[0-9-]+ [0-9:.]+ \+0000`)
	// inEtcd is the revision of a value that cannot be decoded, or the size of one that is too large.
	inEtcd = regexp.MustCompile(`(revision=|larger than max \()[0-9]+`)
	// age is a cell of a table, of the server's or of kubectl's.
	age = regexp.MustCompile(`"[0-9]{1,3}s"|[ ]+[0-9]{1,3}s\b *`)
)

// normalise replaces what differs between any two writes and keeps all else as it is.
func normalise(body []byte) string {
	body = []byte(sortManagers(string(body)))
	if len(body) > longestText {
		return digest(string(body))
	}
	text := variable.ReplaceAllString(string(body), `$1$2~`)
	text = anyUID.ReplaceAllString(text, "~")
	text = inRecord.ReplaceAllString(text, "$1(~)")
	text = inDiff.ReplaceAllString(text, "$1")
	text = inEtcd.ReplaceAllString(text, "$1~")
	return age.ReplaceAllString(text, "~s")
}

var timeOfWrite = regexp.MustCompile(`"time":"[^"]*"`)

// sortManagers gives managed fields an order without time: upstream's begins with
// the second of the last write.
func sortManagers(text string) string {
	const begin, between, end = `"managedFields":[{"apiVersion":`, `},{"apiVersion":`, `}],"name":`
	var sorted strings.Builder
	for {
		before, after, found := strings.Cut(text, begin)
		sorted.WriteString(before)
		fields, rest, closed := strings.Cut(after, end)
		if !found || !closed {
			sorted.WriteString(text[len(before):])
			return sorted.String()
		}
		managers := strings.Split(timeOfWrite.ReplaceAllString(fields, `"time":"~"`), between)
		slices.Sort(managers)
		sorted.WriteString(begin + strings.Join(managers, between) + end)
		text = rest
	}
}

// digest is the form of a large body: expressions would take seconds for it.
func digest(text string) string {
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "time"} {
		var kept strings.Builder
		for prefix := `"` + name + `":"`; ; {
			before, after, found := strings.Cut(text, prefix)
			kept.WriteString(before)
			if !found {
				break
			}
			kept.WriteString(prefix)
			_, text, _ = strings.Cut(after, `"`)
		}
		text = kept.String()
	}
	return fmt.Sprintf("%s ... %d bytes, digest %x", text[:longestText/2], len(text), sha256.Sum256([]byte(text)))
}

// want ends the test unless the answer has the code.
func (r *response) want(code int) *response {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("%s: answered %d, want %d: %.800s", r.name, r.code, code, r.body)
	}
	return r
}

// wantStatus demands a Status object with the code and reason whose message
// holds all the parts.
func (r *response) wantStatus(code int, reason metav1.StatusReason, parts ...string) {
	r.t.Helper()
	status := &metav1.Status{}
	if err := json.Unmarshal(r.body, status); err != nil || status.Kind != "Status" {
		r.t.Fatalf("%s: answered %d with no Status: %.800s", r.name, r.code, r.body)
	}
	if r.code != code || status.Code != int32(code) || status.Reason != reason {
		r.t.Errorf("%s: answered %d with code %d and reason %q, want %d %q: %.800s", r.name, r.code, status.Code, status.Reason, code, reason, r.body)
	}
	for _, part := range parts {
		if !strings.Contains(status.Message, part) {
			r.t.Errorf("%s: message %q lacks %q", r.name, status.Message, part)
		}
	}
}

// object decodes the answer.
func (r *response) object() *unstructured.Unstructured {
	r.t.Helper()
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(r.body, &object.Object); err != nil {
		r.t.Fatalf("%s: decoding the answer: %v: %.800s", r.name, err, r.body)
	}
	return object
}

// wantField demands a value at a path of the answer; nil demands that there is none.
func (r *response) wantField(want any, path ...string) *response {
	r.t.Helper()
	got, _, err := unstructured.NestedFieldNoCopy(r.object().Object, path...)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("%s: %s is %v, want %v", r.name, strings.Join(path, "."), got, want)
	}
	return r
}

// version returns the resource version of the answer.
func (r *response) version() string {
	r.t.Helper()
	version := r.object().GetResourceVersion()
	if version == "" {
		r.t.Fatalf("%s: no resource version: %.800s", r.name, r.body)
	}
	return version
}

// now returns the resource version of the gadgets in the namespace.
func (s *session) now() string {
	s.t.Helper()
	return s.peek(http.MethodGet, s.gadgets()+"?limit=1").want(http.StatusOK).version()
}

// event is a frame of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// eventsSince returns and keeps the events of the gadgets in the namespace after
// a resource version. It makes a last gadget to know where to end.
func (s *session) eventsSince(name, version string, header ...string) []event {
	s.t.Helper()
	s.watches++
	last := fmt.Sprintf("the-end-%d", s.watches)
	s.do(name+": mark the end", http.MethodPost, s.gadgets(), gadget(last, `{}`)).want(http.StatusCreated)
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	answer, err := s.open(ctx, s.target.api, http.MethodGet, s.gadgets()+"?watch=1&timeoutSeconds=20&resourceVersion="+version, "", header...)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	defer answer.Body.Close()
	var events []event
	kept := &response{t: s.t, name: name, code: answer.StatusCode, header: answer.Header}
	for decoder := json.NewDecoder(answer.Body); ; {
		var next event
		if err := decoder.Decode(&next); err != nil {
			s.t.Fatalf("%s: watching: %v", name, err)
		}
		next.Object = s.backward(next.Object)
		kept.body = fmt.Appendf(kept.body, "%s %s\n", next.Type, next.Object)
		if strings.Contains(string(next.Object), `"`+last+`"`) {
			s.keep(kept)
			return events
		}
		events = append(events, next)
	}
}

// gadget is the JSON of a gadget.
func gadget(name, spec string) string { return object("Gadget", name, spec) }

func object(kind, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`, env.FixtureGroup+"/v1", kind, name, spec)
}

// definitions is the path of the CustomResourceDefinitions.
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definition is the JSON of a CRD with one version; more goes into the version.
func definition(plural, kind, schema, more string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"%[1]s.%[5]s"},
		"spec":{"group":%[5]q,"scope":"Namespaced",
			"names":{"plural":%[1]q,"singular":%[6]q,"kind":%[2]q,"listKind":"%[2]sList"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":%[3]s}%[4]s}]}}`,
		plural, kind, schema, more, env.FixtureGroup, strings.ToLower(kind))
}

// install creates a CRD and waits until it is established.
func (s *session) install(plural, crd string) {
	s.t.Helper()
	s.ask(s.target.crds, "create the CRD of "+plural, http.MethodPost, definitions, crd).want(http.StatusCreated)
	s.until("the CRD of "+plural+" to be established", func() bool { return s.established(plural) })
	// A list or watch is refused until the cache of the kind is filled.
	s.until("the cache of "+plural, func() bool {
		return s.peek(http.MethodGet, fixturePath+"/"+plural+"?resourceVersion=0").code == http.StatusOK
	})
}

// established reports whether a CRD has the condition of that name.
func (s *session) established(plural string) bool {
	s.t.Helper()
	crd := s.ask(s.target.crds, "GET the CRD", http.MethodGet, definitions+"/"+plural+"."+env.FixtureGroup, "").want(http.StatusOK)
	// A new CRD has null conditions, which is an error here and means none.
	conditions, _, _ := unstructured.NestedSlice(crd.object().Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		fields, ok := condition.(map[string]any)
		return ok && fields["type"] == "Established" && fields["status"] == "True"
	})
}

// until asks again and again until the condition holds.
func (s *session) until(what string, holds func() bool) {
	s.t.Helper()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(requestTimeout)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			s.t.Fatalf("waited %s for %s", requestTimeout, what)
		case <-s.t.Context().Done():
			s.t.Fatalf("the test ended while waiting for %s", what)
		}
	}
}

// kubectl runs kubectl in the namespace of the session and keeps what it prints.
func (s *session) kubectl(name, stdin string, args ...string) env.Result {
	s.t.Helper()
	for i := range args {
		args[i] = s.forward(args[i])
	}
	result, err := s.target.kubectl.InNamespace(s.namespace).RunInput(s.t.Context(), s.forward(stdin), args...)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	result.Stdout, result.Stderr = string(s.backward([]byte(result.Stdout))), string(s.backward([]byte(result.Stderr)))
	s.steps = append(s.steps, step{Name: name, Code: result.ExitCode, Body: normalise([]byte(result.Stdout + result.Stderr))})
	return result
}
