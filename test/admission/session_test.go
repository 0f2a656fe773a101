// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	jsonType   = "application/json"
	mergePatch = "application/merge-patch+json"
	// timeout bounds the waits of a test, pollInterval is the pause between two looks.
	timeout, pollInterval = time.Minute, 50 * time.Millisecond
)

// target is where a group is asked for.
type target struct {
	name, group string
	// config returns a client configuration of a user.
	config func(user string, groups ...string) (*rest.Config, error)
}

// targets are the judge and those who are compared with it.
func targets() []*target {
	host := func(user string, groups ...string) (*rest.Config, error) {
		return suite.host.ConfigFor(0, user, groups...)
	}
	return []*target{
		{name: "kube-apiserver", group: hostGroup, config: host},
		{name: "annex behind kube-apiserver", group: viaGroup, config: host},
		{name: "annex", group: directGroup, config: suite.annex.BalancedConfig},
	}
}

// replicaConfig returns client configurations at one replica of annex.
func replicaConfig(replica int) func(string, ...string) (*rest.Config, error) {
	return func(string, ...string) (*rest.Config, error) { return suite.annex.AdminConfig(replica) }
}

// session asks one target and keeps the answers.
type session struct {
	t         *testing.T
	target    *target
	namespace string
	answers   []answer
	clients   map[string]*http.Client
	hosts     map[string]string
}

func newSession(t *testing.T, target *target, namespace string) *session {
	return &session{t: t, target: target, namespace: namespace, clients: map[string]*http.Client{}, hosts: map[string]string{}}
}

// answer is what has to be equal everywhere.
type answer struct {
	Step string
	Code int
	Body string
}

// compare runs a script against all targets, one after the other, and demands the same answers.
func compare(t *testing.T, namespace string, script func(*session)) {
	t.Helper()
	var judged []answer
	for i, target := range targets() {
		s := newSession(t, target, namespace)
		script(s)
		if i == 0 {
			judged = s.answers
			for _, a := range judged {
				t.Logf("%s: %d %s", a.Step, a.Code, message(a.Body))
			}
			continue
		}
		if diff := cmp.Diff(judged, s.answers); diff != "" {
			t.Errorf("%s differs (-kube-apiserver +annex):\n%s", target.name, diff)
		}
	}
}

var inMessage = regexp.MustCompile(`"message":"(?:[^"\\]|\\.)*"`)

func message(body string) string { return inMessage.FindString(body) }

// do asks as an administrator, as asks as another user. Paths and bodies name hostGroup.
func (s *session) do(step, method, path, body string) answer {
	s.t.Helper()
	return s.as("admin", step, method, path, body)
}

func (s *session) as(user, step, method, path, body string) answer {
	s.t.Helper()
	result := s.ask(user, step, method, path, body)
	s.answers = append(s.answers, result)
	return result
}

// ask is as for an answer that is not compared.
func (s *session) ask(user, step, method, path, body string) answer {
	s.t.Helper()
	client, host := s.client(user)
	request, err := http.NewRequestWithContext(s.t.Context(), method, host+s.forward(path), strings.NewReader(s.forward(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Accept", jsonType)
	request.Header.Set("Content-Type", jsonType)
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", mergePatch)
	}
	response, err := client.Do(request)
	if err != nil {
		s.t.Fatalf("%s: %s: %v", s.target.name, step, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("%s: %s: %v", s.target.name, step, err)
	}
	text := strings.Join(response.Header.Values("Warning"), "\n") + normalise(strings.ReplaceAll(string(data), s.target.group, hostGroup))
	return answer{Step: step, Code: response.StatusCode, Body: text}
}

func (s *session) client(user string) (*http.Client, string) {
	s.t.Helper()
	if client := s.clients[user]; client != nil {
		return client, s.hosts[user]
	}
	var groups []string
	if user == "admin" {
		groups = []string{"system:masters"}
	}
	config, err := s.target.config(user, groups...)
	if err != nil {
		s.t.Fatal(err)
	}
	config.Timeout, config.UserAgent = timeout, "admission"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.clients[user], s.hosts[user] = client, config.Host
	return client, config.Host
}

func (s *session) forward(text string) string {
	return strings.ReplaceAll(text, hostGroup, s.target.group)
}

// until repeats a request until its answer is the wanted one.
func (s *session) until(what, method, path, body string, wanted func(answer) bool) {
	s.t.Helper()
	var last answer
	err := poll(s.t, func(context.Context) (bool, error) {
		last = s.ask("admin", what, method, path, body)
		return wanted(last), nil
	})
	if err != nil {
		s.t.Fatalf("%s: waiting for %s: %v, last answer: %d %s", s.target.name, what, err, last.Code, last.Body)
	}
}

// of is the path of a resource in the namespace of the session.
func (s *session) of(resource string) string {
	return "/apis/" + hostGroup + "/v1/namespaces/" + s.namespace + "/" + resource
}

var (
	variable = regexp.MustCompile(`"(uid|resourceVersion|creationTimestamp|deletionTimestamp|time)":"[^"]*"`)
	// deletionMark is what normalise leaves of the time of a deletion.
	deletionMark = regexp.MustCompile(`"deletionTimestamp":"~"`)
	anyUID       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// normalise replaces what differs between any two writes.
func normalise(body string) string {
	return anyUID.ReplaceAllString(variable.ReplaceAllString(body, `"$1":"~"`), "~")
}

// gadget is an object of the fixture's kind. more is further metadata, each followed by a comma.
func gadget(name, color string, more ...string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"Gadget","metadata":{%s"name":%q},"spec":{"color":%q}}`,
		hostGroup+"/v1", strings.Join(more, ""), name, color)
}

// newNamespace creates a namespace that belongs to the test, and returns its name.
func newNamespace(t *testing.T, name string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := suite.kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

func poll(t *testing.T, condition wait.ConditionWithContextFunc) error {
	t.Helper()
	return wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, condition)
}
