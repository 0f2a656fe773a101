// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/test/env"
)

const (
	// samples is how often each LIST is asked for; the median is shown.
	samples = 3
	// etcdTimeout bounds a request to etcd, the defragmentation included.
	etcdTimeout = 30 * time.Second
)

// store is what an etcd holds.
type store struct {
	// bytes is the size of the database file.
	bytes int64
	// objects counts keys below the prefix of each group.
	objects map[string]int64
}

// measureStore removes old revisions and free pages from an etcd, as its
// operator would, so that sizes can be compared, and measures it.
func (d *demo) measureStore(ctx context.Context, etcd *env.Etcd) (store, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.URL}, DialTimeout: etcdTimeout, Context: ctx})
	if err != nil {
		return store{}, fmt.Errorf("connecting to etcd: %w", err)
	}
	defer client.Close() //nolint:errcheck // nothing is lost
	measured := store{objects: map[string]int64{}}
	for _, set := range d.sets() {
		answer, err := client.Get(ctx, "/registry/"+set.Group+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return store{}, fmt.Errorf("counting keys in etcd: %w", err)
		}
		measured.objects[set.Group] = answer.Count
	}
	status, err := client.Status(ctx, etcd.URL)
	if err != nil {
		return store{}, fmt.Errorf("reading the status of etcd: %w", err)
	}
	if _, err := client.Compact(ctx, status.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return store{}, fmt.Errorf("compacting etcd: %w", err)
	}
	if _, err := client.Defragment(ctx, etcd.URL); err != nil {
		return store{}, fmt.Errorf("defragmenting etcd: %w", err)
	}
	if status, err = client.Status(ctx, etcd.URL); err != nil {
		return store{}, fmt.Errorf("reading the status of etcd: %w", err)
	}
	measured.bytes = status.DbSize
	return measured, nil
}

// listing is what a LIST over all namespaces of a resource took.
type listing struct {
	// bytes is the size of the answer to the whole LIST.
	bytes int64
	// all and byLabel are the medians.
	all, byLabel time.Duration
	objects      int
	// matching is the number of objects with the label.
	matching int
	// annexed says who answered.
	annexed bool
}

// serverName names who answers.
func serverName(annexed bool) string {
	if annexed {
		return "annex"
	}
	return "kube-apiserver"
}

// measureLists asks the way every client does: through kube-apiserver, for the
// present state. The objects are counted apart from that, the answers not decoded.
func (d *demo) measureLists(ctx context.Context, set *dataset) (listing, error) {
	client, err := rest.HTTPClientFor(d.config)
	if err != nil {
		return listing{}, fmt.Errorf("making a client: %w", err)
	}
	path := fmt.Sprintf("%s/apis/%s/%s", d.config.Host, set.GroupVersion(), set.Resource)
	var measured listing
	if measured.all, measured.bytes, err = medianOf(ctx, client, path); err != nil {
		return listing{}, err
	}
	if measured.byLabel, _, err = medianOf(ctx, client, path+"?labelSelector="+url.QueryEscape(set.label)); err != nil {
		return listing{}, err
	}
	for selector, count := range map[string]*int{"": &measured.objects, set.label: &measured.matching} {
		list, err := d.client.Resource(set.GroupVersionResource).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return listing{}, fmt.Errorf("listing %s: %w", set.title(), err)
		}
		*count = len(list.Items)
	}
	measured.annexed, err = d.annexed(ctx, set)
	return measured, err
}

// annexed says who answers: revisions of annex are above those of any cluster.
func (d *demo) annexed(ctx context.Context, set *dataset) (bool, error) {
	list, err := d.client.Resource(set.GroupVersionResource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("listing %s: %w", set.title(), err)
	}
	revision, err := strconv.ParseInt(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return false, fmt.Errorf("reading a resource version: %w", err)
	}
	return revision >= embedded.DefaultRevisionFloor, nil
}

func medianOf(ctx context.Context, client *http.Client, path string) (time.Duration, int64, error) {
	var times []time.Duration
	var size int64
	for range samples {
		start := time.Now()
		n, err := drain(ctx, client, path)
		if err != nil {
			return 0, 0, err
		}
		times, size = append(times, time.Since(start)), n
	}
	slices.Sort(times)
	return times[len(times)/2], size, nil
}

// drain reads an answer to its end and returns its size.
func drain(ctx context.Context, client *http.Client, path string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(answer.Body, 500))
		return 0, fmt.Errorf("GET %s: %s %s %w", path, answer.Status, strings.TrimSpace(string(text)), err)
	}
	return io.Copy(io.Discard, answer.Body)
}
