// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// busyWorkflows and changedReports are the fewest objects that the acts need.
	busyWorkflows  = dependents
	changedReports = 100
	// pollInterval is the pause between two looks at something that takes its time.
	pollInterval = 200 * time.Millisecond
	// arrivalTimeout is how long an event may take to an informer.
	arrivalTimeout = 30 * time.Second
)

func (d *demo) buildCluster(ctx context.Context) error {
	d.heading("A cluster, and annex beside it")
	d.sayf("Starting etcd, kube-apiserver and kube-controller-manager.")
	if err := d.startCluster(ctx); err != nil {
		return err
	}
	d.sayf("%d definitions of Argo Workflows and of policy reports are installed.", d.definitions)
	d.sayf("Starting annex-apiserver with its own etcd, and annex-controller.")
	if err := d.startAnnex(ctx); err != nil {
		return err
	}
	var err error
	d.kubectl, err = d.newKubectl()
	return err
}

func (d *demo) fillCluster(ctx context.Context) error {
	d.heading("A few thousand objects")
	g := newGenerator(d.options.seed)
	d.workflows, d.reports = workflowSet(g, d.options.workflows), reportSet(g, d.options.reports)
	begin := time.Now()
	if err := d.fill(ctx); err != nil {
		return err
	}
	if err := d.fillDependents(ctx); err != nil {
		return err
	}
	d.sayf("Created %d workflows and %d policy reports in %s; %d workflows own a ConfigMap.",
		len(d.workflows.objects), len(d.reports.objects), seconds(time.Since(begin)), dependents)
	var err error
	if d.before, err = d.measure(ctx); err != nil {
		return err
	}
	rows := [][]string{{"RESOURCE", "OBJECTS", "SIZE AS JSON", "SERVED BY", "LIST ALL", "LIST BY LABEL"}}
	for _, set := range d.sets() {
		l := d.before.lists[set]
		if l.annexed {
			return fmt.Errorf("%s is served by annex already", set.title())
		}
		rows = append(rows, []string{
			set.title(), fmt.Sprint(l.objects), size(l.bytes), serverName(l.annexed), milliseconds(l.all),
			fmt.Sprintf("%s (%d match)", milliseconds(l.byLabel), l.matching),
		})
	}
	if err := d.table(rows...); err != nil {
		return err
	}
	d.sayf("The cluster's etcd: %s, compacted and defragmented by this demonstration.", size(d.before.host.bytes))
	return nil
}

func (d *demo) startWatching(ctx context.Context) error {
	d.heading("Clients")
	d.observers = map[*dataset]*observer{}
	for _, set := range d.sets() {
		o, err := d.observe(ctx, set)
		if err != nil {
			return err
		}
		d.observers[set] = o
		d.sayf("A client-go informer watches %s and has %d objects.", set.title(), len(o.informer.GetStore().ListKeys()))
	}
	d.sayf("During each move a client writes 40 times a second.")
	return nil
}

func (d *demo) adoptBoth(ctx context.Context) error {
	d.heading("Adopt both groups")
	if err := d.run(ctx, "annex", "adopt", d.workflows.Group, "--dry-run"); err != nil {
		return err
	}
	for _, set := range d.sets() {
		d.sayf("")
		if err := d.move(ctx, set, true, "annex", "adopt", set.Group, "--wait"); err != nil {
			return err
		}
	}
	d.sayf("")
	return d.run(ctx, "annex", "status")
}

// move runs a command that moves a group, while a writer writes, and demands that
// no client notices more than a pause.
func (d *demo) move(ctx context.Context, set *dataset, toAnnex bool, command ...string) error {
	before, err := d.snapshot(ctx, set)
	if err != nil {
		return err
	}
	seenBefore := d.observers[set].sightings()
	w := d.write(ctx, set)
	err = d.run(ctx, command...)
	if err == nil {
		err = d.checkServed(ctx, set, toAnnex)
	}
	w.close()
	if err != nil {
		return err
	}
	after, err := d.snapshot(ctx, set)
	if err != nil {
		return err
	}
	if err := before.compare(after, w.acknowledged); err != nil {
		return fmt.Errorf("after the move of %s: %w", set.Group, err)
	}
	d.sayf("  objects:  %d before, %d after; every UID and every field but the resourceVersion is the same", len(before), len(after))
	if w.failed != nil {
		return fmt.Errorf("a write failed during the move of %s: %w", set.Group, w.failed)
	}
	if err := d.checkWrites(ctx, set, w); err != nil {
		return err
	}
	d.sayf("  writer:   %d writes, 0 failed, 0 lost; the longest took %s", w.writes, seconds(w.longest))
	return d.checkSightings(ctx, set, seenBefore, w)
}

// checkServed demands that a LIST comes from annex or from the cluster.
func (d *demo) checkServed(ctx context.Context, set *dataset, want bool) error {
	got, err := d.annexed(ctx, set)
	if err == nil && got != want {
		err = fmt.Errorf("%s is served by %s, want %s", set.title(), serverName(got), serverName(want))
	}
	return err
}

// checkWrites demands that every object has the last count that was acknowledged.
func (d *demo) checkWrites(ctx context.Context, set *dataset, w *writer) error {
	if len(w.acknowledged) == 0 {
		return errors.New("the writer has written nothing")
	}
	for _, object := range w.objects {
		want, written := w.acknowledged[keyOf(object)]
		if !written {
			continue
		}
		got, err := w.resource.Namespace(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading %s: %w", object.GetName(), err)
		}
		if count := got.GetAnnotations()[countAnnotation]; count != want {
			return fmt.Errorf("%s %s has count %q after the move, %q was written", set.kind, object.GetName(), count, want)
		}
	}
	return nil
}

// checkSightings demands that the informer saw nothing but updates and, in the
// end, the last of them.
func (d *demo) checkSightings(ctx context.Context, set *dataset, before sightings, w *writer) error {
	o := d.observers[set]
	var missing string
	err := wait.PollUntilContextTimeout(ctx, pollInterval, arrivalTimeout, true, func(context.Context) (bool, error) {
		missing = ""
		for key, want := range w.acknowledged {
			if object := o.cached(key); object == nil || object.GetAnnotations()[countAnnotation] != want {
				missing = key
			}
		}
		return missing == "", nil
	})
	if err != nil {
		return fmt.Errorf("the informer of %s is silent: it has not seen the last write to %s", set.title(), missing)
	}
	now := o.sightings()
	d.sayf("  informer: %d updates, relists=%d, deletes=%d, adds=%d, UID changes=%d; it has every last write",
		now.updated-before.updated, now.lists-before.lists, now.deleted, now.added, now.renamed)
	if now.deleted != 0 || now.added != 0 || now.renamed != 0 {
		return fmt.Errorf("the informer of %s saw objects appear, disappear or change their UID", set.title())
	}
	return nil
}

func (d *demo) compareLists(ctx context.Context) error {
	d.heading("The same requests as before")
	now, err := d.measure(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"RESOURCE", "SERVED BY", "LIST ALL", "BEFORE", "LIST BY LABEL", "BEFORE"}}
	for _, set := range d.sets() {
		before, l := d.before.lists[set], now.lists[set]
		if !l.annexed || l.matching != before.matching {
			return fmt.Errorf("%s: %d objects match in %s, %d did before", set.title(), l.matching, serverName(l.annexed), before.matching)
		}
		rows = append(rows, []string{
			set.title(), serverName(l.annexed), milliseconds(l.all), milliseconds(before.all), milliseconds(l.byLabel), milliseconds(before.byLabel),
		})
	}
	return d.table(rows...)
}

func (d *demo) purgeWorkflows(ctx context.Context) error {
	group := d.workflows.Group
	d.heading("Free the cluster's etcd")
	before, err := d.measureStore(ctx, d.host.Etcd)
	if err != nil {
		return err
	}
	if before.objects[group] != int64(len(d.workflows.objects)) {
		return fmt.Errorf("the cluster's etcd holds %d objects of %s before the purge", before.objects[group], group)
	}
	seenBefore := d.observers[d.workflows].sightings()
	if err := d.run(ctx, "annex", "purge", group, "--yes", "--wait"); err != nil {
		return err
	}
	after, err := d.measureStore(ctx, d.host.Etcd)
	if err != nil {
		return err
	}
	annex, err := d.measureStore(ctx, d.annex.Etcd)
	if err != nil {
		return err
	}
	if err := d.table(
		[]string{"ETCD", "SIZE BEFORE", "SIZE AFTER", "WORKFLOWS BEFORE", "WORKFLOWS AFTER"},
		[]string{"the cluster's", size(before.bytes), size(after.bytes), fmt.Sprint(before.objects[group]), fmt.Sprint(after.objects[group])},
		[]string{"annex's", "", size(annex.bytes), "", fmt.Sprint(annex.objects[group])},
	); err != nil {
		return err
	}
	d.sayf("All sizes after compaction and defragmentation by this demonstration.")
	if after.objects[group] != 0 {
		return fmt.Errorf("the cluster's etcd still holds %d objects of %s", after.objects[group], group)
	}
	if freed := before.bytes - after.bytes; freed < d.before.lists[d.workflows].bytes/2 {
		return fmt.Errorf("the purge freed %s only", size(freed))
	}
	if now := d.observers[d.workflows].sightings(); now != seenBefore {
		return fmt.Errorf("the informer noticed the purge: %+v, before it %+v", now, seenBefore)
	}
	d.sayf("The informer has noticed nothing.")
	return nil
}

func (d *demo) releaseReports(ctx context.Context) error {
	d.heading("Give the policy reports back")
	if err := d.move(ctx, d.reports, false, "annex", "release", d.reports.Group, "--wait"); err != nil {
		return err
	}
	d.sayf("")
	return d.run(ctx, "annex", "status")
}

// lookBack checks what takes its time to go wrong.
func (d *demo) lookBack(ctx context.Context) error {
	d.heading("Afterwards")
	remaining, err := d.remainingDependents(ctx)
	if err != nil {
		return err
	}
	if remaining != dependents {
		return fmt.Errorf("%d of %d ConfigMaps that workflows own are left", remaining, dependents)
	}
	d.sayf("%d of %d ConfigMaps that workflows own are there: the garbage collector saw nothing go.", remaining, dependents)
	for _, set := range d.sets() {
		annexed := set == d.workflows
		if err := d.checkServed(ctx, set, annexed); err != nil {
			return err
		}
		objects, err := d.snapshot(ctx, set)
		if err != nil {
			return err
		}
		if len(objects) != len(set.objects) {
			return fmt.Errorf("%s has %d objects in the end, %d were created", set.title(), len(objects), len(set.objects))
		}
		d.sayf("%d %s are served by %s.", len(objects), set.title(), serverName(annexed))
		d.observers[set].close()
	}
	return nil
}
