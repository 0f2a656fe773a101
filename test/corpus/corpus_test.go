// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeannex/annex/test/corpus/modules"
	"github.com/kubeannex/annex/test/env"
)

// maxMemory is the resident memory that annex may need with the whole corpus
// loaded at once, at its peak.
const maxMemory = 1536 * mebibyte

// loadTimeout bounds a load that never ends; it is no measure of speed.
const loadTimeout = 4 * time.Minute

// corpus is the state of both servers as it goes through the parts of TestCorpus.
type corpus struct {
	folders     map[string]string
	definitions []definition
	known       catalog
	// namespaces exist in the host.
	namespaces map[string]bool
}

// loadResult is one load with its cost.
type loadResult struct {
	*definitionLoad

	before, after usage
	// explained and quiet are how long it took until kubectl explain was right and
	// until the server had nothing left to do.
	explained, quiet time.Duration
	prober           *prober
}

// TestCorpus walks through the life of a cluster with ten projects in it; each
// part needs the ones before it.
//
// It is the test of what many definitions cost (kubernetes/kubernetes 101755 and
// 105932, Azure/azure-service-operator 2920). Memory is asserted, and so are reads
// of another kind during a load. How long a server works until it is quiet is
// compared with kube-apiserver and printed, but bounded by loadTimeout only: on a
// machine of which others use half, the same work takes twice as long.
func TestCorpus(t *testing.T) {
	ctx := testContext(t)
	folders, err := modules.Fetch(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &corpus{folders: folders, namespaces: map[string]bool{metav1.NamespaceDefault: true}}
	for _, entry := range loaded() {
		found, err := entry.definitions(folders)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-55s %3d definitions", entry.module, len(found))
		c.definitions = append(c.definitions, found...)
	}
	c.known = newCatalog(c.definitions)
	annex, host := measureLoad(ctx, t, suite.annex, c.definitions), measureLoad(ctx, t, suite.host, c.definitions)

	t.Run("definitions", func(t *testing.T) {
		compareVerdicts(t, c.definitions, annex.definitionLoad, host.definitionLoad, len(c.definitions))
	})
	t.Run("cost of a load", func(t *testing.T) { checkCost(t, annex, host) })
	t.Run("touching a definition", func(t *testing.T) { compareTouches(ctx, t) })
	t.Run("explain", func(t *testing.T) { compareExplain(ctx, t) })
	t.Run("names taken", func(t *testing.T) { compareTakenNames(ctx, t) })
	t.Run("samples", func(t *testing.T) { c.compareSamples(ctx, t, samples()) })
	t.Run("conversion webhook that is not there", func(t *testing.T) { c.compareMissingWebhook(ctx, t) })
	t.Run("revisions", func(t *testing.T) { c.compareRevisions(ctx, t) })
	t.Run("samples after revisions", func(t *testing.T) { c.compareSamples(ctx, t, revisedSamples()) })
	t.Run("stored objects", func(t *testing.T) { c.compareStored(ctx, t) })
}

// measureLoad loads everything at once into one server while the other one is
// idle, and reads an object of another kind all the time.
func measureLoad(ctx context.Context, t *testing.T, s *server, definitions []definition) *loadResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	path := makePlanet(ctx, t, s)
	result := &loadResult{}
	var err error
	if result.before, err = usageOf(s.process); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	result.prober = s.probe(ctx, path)
	result.definitionLoad, err = s.load(ctx, definitions)
	if err == nil {
		err = s.waitExplained(ctx, "workflows.spec", "activeDeadlineSeconds")
		result.explained = time.Since(begin)
	}
	if err == nil {
		result.after, err = waitQuiet(ctx, s.process)
		result.quiet = time.Since(begin)
	}
	result.prober.stop()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// waitExplained waits until the real kubectl explains a field as wanted.
func (s *server) waitExplained(ctx context.Context, field, want string) error {
	var last env.Result
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		last, err = s.kubectl.Run(ctx, "explain", field)
		return last.ExitCode == 0 && strings.Contains(last.Stdout, want), err
	})
	if err != nil {
		return fmt.Errorf("%s: waiting for kubectl explain %s: %w, last answer: %+v", s.name, field, err, last)
	}
	return nil
}

// makePlanet installs a kind that is not part of the corpus with one object and returns its path.
func makePlanet(ctx context.Context, t *testing.T, s *server) string {
	t.Helper()
	crd, err := env.PlanetCRD()
	if err != nil {
		t.Fatal(err)
	}
	if err := env.InstallCRD(ctx, s.config, crd); err != nil {
		t.Fatal(err)
	}
	got, err := s.post(ctx, planetPath(), env.Object("Planet", "", "earth", nil))
	if err != nil || !got.ok() {
		t.Fatalf("%s: creating a planet: %v %+v", s.name, err, got.answer)
	}
	return planetPath() + "/earth"
}

func planetPath() string {
	return collectionPath(schema.GroupVersionResource{Group: env.FixtureGroup, Version: "v1", Resource: "planets"}, "")
}

// compareVerdicts demands the same answer and the same conditions for every
// definition, and that the host accepts as many as are known to be valid.
func compareVerdicts(t *testing.T, definitions []definition, annex, host *definitionLoad, wantAccepted int) {
	t.Helper()
	accepted := 0
	for _, d := range definitions {
		a, h := annex.verdicts[d.GetName()], host.verdicts[d.GetName()]
		if diff := difference(h.created, a.created); diff != "" {
			t.Errorf("%s (%s): answer, -host +annex:\n%s", d.GetName(), d.source, diff)
		}
		if diff := difference(h.settled, a.settled); diff != "" {
			t.Errorf("%s (%s): settled, -host +annex:\n%s", d.GetName(), d.source, diff)
		}
		if h.created.ok() && conditions(h.settled.Object)["Established"] == "True" {
			accepted++
		}
	}
	t.Logf("%d definitions compared, %d accepted by the host", len(definitions), accepted)
	if accepted != wantAccepted {
		t.Errorf("the host accepted %d definitions, want %d", accepted, wantAccepted)
	}
}

// checkCost prints what the load took and fails when annex needs too much memory
// or does not serve meanwhile. Times depend on the machine, so they are printed only.
func checkCost(t *testing.T, annex, host *loadResult) {
	for name, r := range map[string]*loadResult{"annex": annex, "host": host} {
		t.Logf("%-5s settled %s, published %s, explained %s, quiet %s, CPU %s, memory %d MiB before, %d after, %d at most",
			name, r.settled.Round(time.Millisecond), r.published.Round(time.Millisecond),
			r.explained.Round(time.Millisecond), r.quiet.Round(time.Millisecond),
			r.after.cpu-r.before.cpu, r.before.rss/mebibyte, r.after.rss/mebibyte, r.after.peak/mebibyte)
		t.Logf("%-5s reads meanwhile: %d, median %s, 99%% %s, longest %s, failed %d", name, len(r.prober.latencies),
			r.prober.quantile(0.5), r.prober.quantile(0.99), r.prober.quantile(1), len(r.prober.failures))
		if len(r.prober.failures) > 0 || len(r.prober.latencies) == 0 {
			t.Errorf("%s did not serve during the load: %d reads succeeded, failures %q", name, len(r.prober.latencies), r.prober.failures)
		}
	}
	ratio := func(a, h float64) float64 { return float64(int(100*a/h)) / 100 }
	t.Logf("annex / host: peak memory %v, CPU %v, published %v, explained %v, quiet %v",
		ratio(float64(annex.after.peak), float64(host.after.peak)),
		ratio(float64(annex.after.cpu-annex.before.cpu), float64(host.after.cpu-host.before.cpu)),
		ratio(float64(annex.published), float64(host.published)),
		ratio(float64(annex.explained), float64(host.explained)), ratio(float64(annex.quiet), float64(host.quiet)))
	if annex.after.peak > maxMemory {
		t.Errorf("annex needed %d MiB, at most %d are allowed", annex.after.peak/mebibyte, maxMemory/mebibyte)
	}
}

// compareTouches changes an annotation of one of the largest definitions once a
// second, as controllers that inject certificates do, and reads an object of
// another kind all the time.
func compareTouches(ctx context.Context, t *testing.T) {
	const touches = 10
	annex, host, err := both(ctx, func(ctx context.Context, s *server) (time.Duration, error) {
		before, err := usageOf(s.process)
		if err != nil {
			return 0, err
		}
		prober := s.probe(ctx, planetPath()+"/earth")
		defer prober.stop()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for i := range touches {
			body := fmt.Sprintf(`{"metadata":{"annotations":{"corpus/touched":"%d"}}}`, i)
			got, err := s.merge(ctx, definitionsPath+"/workflows.argoproj.io", []byte(body))
			if err != nil || !got.ok() {
				return 0, fmt.Errorf("%s: touching a definition: %w %+v", s.name, err, got.answer)
			}
			<-tick.C
		}
		prober.stop()
		after, err := waitQuiet(ctx, s.process)
		if err == nil && len(prober.failures) > 0 {
			err = fmt.Errorf("%s did not serve meanwhile: %q", s.name, prober.failures)
		}
		t.Logf("%-5s reads meanwhile: %d, median %s, longest %s, memory %d MiB at most", s.name,
			len(prober.latencies), prober.quantile(0.5), prober.quantile(1), after.peak/mebibyte)
		return after.cpu - before.cpu, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("CPU for one touch: annex %s, host %s", annex/touches, host/touches)
}

// ensureNamespace makes a namespace in the host, whose namespaces are annex's too.
func (c *corpus) ensureNamespace(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if c.namespaces[name] {
		return
	}
	c.namespaces[name] = true
	client, err := kubernetes.NewForConfig(suite.host.config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, namespaceObject(name), metav1.CreateOptions{})
	if err != nil {
		t.Logf("namespace %q stays without: %v", name, err)
	}
}
