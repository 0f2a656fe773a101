// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	mergePatch = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

// step is one request of a story.
type step struct {
	name string
	// CURRENT stands for the resourceVersion of the object at the path, STALE for an older one and UID for its UID.
	request
	// want is the code of the answer.
	want int
}

// told is a step as a client sees it, without what differs between two objects.
type told struct {
	Name, Answer, Header, Stored string
}

// patch is a request with a body of a type.
func patch(contentType, path, body string) request {
	return request{method: http.MethodPatch, path: path, body: body, header: map[string]string{"Content-Type": contentType}}
}

// accepting is the same request with another Accept.
func (r request) accepting(accept string) request {
	header := map[string]string{"Accept": accept}
	maps.Copy(header, r.header)
	r.header = header
	return r
}

// story is what the two servers are asked one after the other.
func story() []step {
	list := gadgets("v1", "story")
	one, old := list+"/one", gadgets("v1beta1", "story")+"/one"
	post := func(path, body string) request { return request{method: http.MethodPost, path: path, body: body} }
	put := func(path, body string) request { return request{method: http.MethodPut, path: path, body: body} }
	remove := func(path, body string) request { return request{method: http.MethodDelete, path: path, body: body} }
	object := func(name, metadata, rest string) string {
		return fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":%q%s}%s}`, name, metadata, rest)
	}
	labelled := `,"labels":{"team":"a"}`
	spec := `,"spec":{"color":"red","size":1,"note":"<&>\u2028é"}`
	return []step{
		{"create", post(list, object("one", labelled, spec)), 201},
		{"create again", post(list, object("one", labelled, spec)), 409},
		{"create with a mistake", post(list, object("two", "", `,"spec":{"size":"x"}`)), 422},
		{"create what is no object", post(list, `[]`), 400},
		{"create what is no JSON", post(list, `{`), 400},
		{"create with a version", post(list, object("two", `,"resourceVersion":"1"`, spec)), 500},
		{"create another kind", post(list, strings.Replace(object("two", "", spec), "Gadget", "Planet", 1)), 422},
		{"create in another namespace", post(list, object("two", `,"namespace":"other"`, spec)), 400},
		{"create without a name", post(list, `{"apiVersion":"lab.annex.test/v1","kind":"Gadget"}`), 422},
		{"create with an unknown field, strictly", post(list+"?fieldValidation=Strict", object("two", "", `,"spec":{"unknown":1}`)), 400},
		{"create with an unknown field, warned", post(list+"?fieldValidation=Warn&dryRun=All", object("two", "", `,"spec":{"unknown":1}`)), 201},
		{"create in broken UTF-8", post(list+"?dryRun=All", object("two", "", ",\"spec\":{\"note\":\"a\xffb\"}")), 201},
		{"create, not for good", post(list+"?dryRun=All", object("two", labelled, spec)), 201},
		{"create in YAML", request{http.MethodPost, list, "apiVersion: lab.annex.test/v1\nkind: Gadget\nmetadata: {name: yaml}\nspec: {size: 7}\n", map[string]string{"Content-Type": yamlType, "Accept": yamlType}}, 201},
		{"create for a table", post(list, object("table", labelled, spec)).accepting(as(jsonType, "Table", "v1")), 201},
		{"create for metadata", post(list, object("metadata", labelled, spec)).accepting(as(protobufType, "PartialObjectMetadata", "v1")), 201},
		{"create by the old version", post(gadgets("v1beta1", "story"), strings.Replace(object("old", labelled, spec), "/v1\"", "/v1beta1\"", 1)), 201},
		{"merge", patch(mergePatch, one, `{"spec":{"size":2,"color":null},"metadata":{"annotations":{"a":"b"}}}`), 200},
		{"merge nothing", patch(mergePatch, one, `{"spec":{"size":2}}`), 200},
		{"merge by the old version", patch(mergePatch, old, `{"spec":{"size":3}}`), 200},
		{"merge with the current version", patch(mergePatch, one, `{"metadata":{"resourceVersion":"CURRENT"},"spec":{"size":4}}`), 200},
		{"merge with a stale version", patch(mergePatch, one, `{"metadata":{"resourceVersion":"STALE"},"spec":{"size":5}}`), 409},
		{"merge with another UID", patch(mergePatch, one, `{"metadata":{"uid":"another"}}`), 422},
		{"merge a mistake", patch(mergePatch, one, `{"spec":{"size":"x"}}`), 422},
		{"merge into nothing", patch(mergePatch, list+"/nobody", `{}`), 404},
		{"JSON patch", patch(jsonPatch, one, `[{"op":"test","path":"/spec/size","value":4},{"op":"replace","path":"/spec/size","value":9007199254740993},{"op":"replace","path":"/spec/size","value":6}]`), 200},
		{"JSON patch whose test fails", patch(jsonPatch, one, `[{"op":"test","path":"/spec/size","value":4}]`), 422},
		{"JSON patch of nothing", patch(jsonPatch, one, `[{"op":"remove","path":"/spec/nobody"}]`), 422},
		{"strategic patch", patch("application/strategic-merge-patch+json", one, `{}`), 415},
		{"apply", patch(applyPatch, one+"?fieldManager=other", object("one", "", `,"spec":{"hot":true}`)), 200},
		{"apply again", patch(applyPatch, one+"?fieldManager=other", object("one", "", `,"spec":{"hot":true}`)), 200},
		{"apply against another", patch(applyPatch, one+"?fieldManager=third", object("one", "", `,"spec":{"hot":false}`)), 409},
		{"apply by force", patch(applyPatch, one+"?fieldManager=third&force=true", object("one", "", `,"spec":{"hot":false}`)), 200},
		{"apply what is new", patch(applyPatch, list+"/applied?fieldManager=other", object("applied", labelled, spec)), 201},
		{"apply to the status", patch(applyPatch, one+"/status?fieldManager=other", object("one", "", `,"status":{"size":1}`)), 200},
		{"update", put(one, object("one", labelled+`,"resourceVersion":"CURRENT"`, spec)), 200},
		{"update with a stale version", put(one, object("one", `,"resourceVersion":"STALE"`, spec)), 409},
		{"update without a version", put(one, object("one", labelled, spec)), 422},
		{"update what is not there", put(list+"/nobody", object("nobody", `,"resourceVersion":"1"`, spec)), 404},
		{"update under another name", put(one, object("two", `,"resourceVersion":"CURRENT"`, spec)), 400},
		{"update the same", put(one, object("one", labelled+`,"resourceVersion":"CURRENT"`, spec)), 200},
		{"update the status", put(one+"/status", object("one", labelled+`,"resourceVersion":"CURRENT"`, `,"spec":{"size":99},"status":{"size":5,"sel":"a=b"}`)), 200},
		{"merge into the status", patch(mergePatch, one+"/status", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), 200},
		{"scale up", put(one+"/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"one","namespace":"story"},"spec":{"replicas":8}}`), 200},
		{"scale by a merge", patch(mergePatch, one+"/scale", `{"spec":{"replicas":7}}`), 200},
		{"scale by a JSON patch", patch(jsonPatch, old+"/scale", `[{"op":"replace","path":"/spec/replicas","value":6}]`), 200},
		{"scale with a stale version", put(one+"/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"one","namespace":"story","resourceVersion":"STALE"},"spec":{"replicas":8}}`), 409},
		{"delete with another UID", remove(one, `{"preconditions":{"uid":"another"}}`), 409},
		{"delete with a stale version", remove(one, `{"preconditions":{"resourceVersion":"STALE"}}`), 409},
		{"delete, not for good", remove(one+"?dryRun=All", ""), 200},
		{"hold", patch(mergePatch, one, `{"metadata":{"finalizers":["lab.annex.test/hold"]}}`), 200},
		{"delete what is held", remove(one, `{"preconditions":{"uid":"UID","resourceVersion":"CURRENT"}}`), 200},
		{"delete it again", remove(one, ""), 200},
		{"change what is held", patch(mergePatch, one, `{"spec":{"size":1}}`), 200},
		{"let go", patch(mergePatch, one, `{"metadata":{"finalizers":null}}`), 200},
		{"change what is gone", patch(mergePatch, one, `{}`), 404},
		{"delete what is gone", remove(one, ""), 404},
		{"delete for a table", remove(list+"/table", "").accepting(as(jsonType, "Table", "v1")), 200},
		{"delete some, not for good", remove(list+"?dryRun=All", ""), 200},
		{"delete some", remove(list+"?labelSelector=team%3Da&fieldSelector=spec.color%3Dred", ""), 200},
		{"delete with a malformed selector", remove(list+"?fieldSelector=spec.unknown%3D1", ""), 400},
		{"delete the rest, for metadata", remove(list, "").accepting(as(jsonType, "PartialObjectMetadataList", "v1")), 200},
		{"delete nothing", remove(list, ""), 200},
	}
}

// own is what an object has that another object of the same making has not.
var own = regexp.MustCompile(`("?(?:uid|creationTimestamp|deletionTimestamp|time|resourceVersion)"?: ?)"[^"]*"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ|\b1125\d{12}\b`)

// managers are the managed fields of an object in JSON, which are in the order of their times.
var managers = regexp.MustCompile(`"managedFields":\[(.*?\})\],"`)

func anonymous(text []byte) string {
	text = managers.ReplaceAllFunc(own.ReplaceAll(text, []byte("${1}OWN")), func(found []byte) []byte {
		entries := strings.Split(string(managers.FindSubmatch(found)[1]), `,{"apiVersion"`)
		entries[0] = strings.TrimPrefix(entries[0], `{"apiVersion"`)
		slices.Sort(entries)
		return []byte(strings.Join(entries, ` and `))
	})
	return string(text)
}

// TestWrites tells both servers the same story and compares the answers, what is stored, and after every step what both
// servers have to say about it.
func TestWrites(t *testing.T) {
	w := shared
	heard := map[*side][]told{}
	for _, s := range w.sides() {
		t.Run("by the "+s.name+" server", func(t *testing.T) {
			stale := "1"
			for _, step := range story() {
				heard[s] = append(heard[s], w.tell(t, s, step, &stale))
			}
		})
	}
	if diff := cmp.Diff(heard[w.plain], heard[w.compact]); diff != "" {
		t.Errorf("the story of two servers (-plain +compact):\n%s", diff)
	}
}

// tell makes a step by one server and compares what both say afterwards.
func (w *world) tell(t *testing.T, s *side, step step, stale *string) told {
	t.Helper()
	object := strings.TrimSuffix(strings.TrimSuffix(strings.Split(step.path, "?")[0], "/status"), "/scale")
	before, err := s.ask(t.Context(), get(object))
	if err != nil {
		t.Fatal(err)
	}
	current := fmt.Sprint(listVersion(before.body))
	uid := ""
	if found := regexp.MustCompile(`"uid":"([^"]+)"`).FindSubmatch(before.body); found != nil {
		uid = string(found[1])
	}
	step.body = strings.NewReplacer("CURRENT", current, "STALE", *stale, "UID", uid).Replace(step.body)
	got, err := s.ask(t.Context(), step.request)
	if err != nil {
		t.Fatal(err)
	}
	if got.code != step.want {
		t.Errorf("%s is answered with %d, want %d: %s", step.name, got.code, step.want, excerpt(got.body, 0))
	}
	if strings.HasSuffix(object, "/one") {
		*stale = fmt.Sprint(listVersion(before.body) - 1)
	}
	header := withoutOwn(got.header, true)
	names := sortedKeys(header)
	w.sameAfterwards(t, object)
	values, err := w.client.Get(t.Context(), "/registry/lab.annex.test/gadgets/story/"+object[strings.LastIndex(object, "/")+1:])
	if err != nil {
		t.Fatal(err)
	}
	stored := ""
	for _, value := range values.Kvs {
		stored += anonymous(value.Value)
	}
	answer := fmt.Sprint(got.code, " ", anonymous(got.body))
	if strings.HasPrefix(header.Get("Content-Type"), protobufType) {
		answer = fmt.Sprint(got.code, " ", len(got.body), " bytes")
	}
	return told{Name: step.name, Answer: answer, Header: fmt.Sprint(names, slices.Sorted(slices.Values(header["Warning"]))), Stored: stored}
}

// sameAfterwards compares what both servers say about an object and its list.
func (w *world) sameAfterwards(t *testing.T, object string) {
	t.Helper()
	list := gadgets("v1", "story")
	for _, path := range []string{
		object, object + "/scale", object + "/status", list, strings.Replace(list, "/v1/", "/v1beta1/", 1), list + "?labelSelector=team%3Da", list + "?fieldSelector=spec.color%3Dred", list + "?limit=2",
	} {
		w.same(t, get(path))
	}
}
