// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

// demo is one run. Its fields are set by the acts, in their order.
type demo struct {
	options options
	env     *env.Env
	dir     string
	out     io.Writer
	acts    int

	host        *env.Host
	annex       *env.Annex
	config      *rest.Config
	client      dynamic.Interface
	kubectl     *kubectl
	definitions int

	workflows, reports *dataset
	observers          map[*dataset]*observer
	// before is what was measured before anything was adopted.
	before measurements
}

// measurements are the numbers that the demonstration compares.
type measurements struct {
	host  store
	lists map[*dataset]listing
}

// play goes through all acts.
func (d *demo) play(ctx context.Context) error {
	begin := time.Now()
	for _, act := range []func(context.Context) error{
		d.buildCluster, d.fillCluster, d.startWatching, d.adoptBoth, d.compareLists, d.purgeWorkflows, d.releaseReports, d.lookBack,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	d.sayf("\nEverything was as promised. %.0f seconds; all processes are ended.", time.Since(begin).Seconds())
	return nil
}

func (d *demo) sets() []*dataset { return []*dataset{d.workflows, d.reports} }

// measure measures the host's etcd and the LISTs of both resources.
func (d *demo) measure(ctx context.Context) (measurements, error) {
	m := measurements{lists: map[*dataset]listing{}}
	var err error
	if m.host, err = d.measureStore(ctx, d.host.Etcd); err != nil {
		return m, err
	}
	for _, set := range d.sets() {
		if m.lists[set], err = d.measureLists(ctx, set); err != nil {
			return m, err
		}
		if got := m.lists[set].objects; got != len(set.objects) {
			return m, fmt.Errorf("%s has %d objects, %d were created", set.title(), got, len(set.objects))
		}
	}
	return m, nil
}
