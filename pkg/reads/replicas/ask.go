// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// answers are what the others have seen.
type answers struct {
	at    time.Time
	lists []*kubeannex.ListProfileList
	// missing are the names of those that are known and have not answered.
	missing []string
	// err says why.
	err error
}

// warning is empty if nothing is missing.
func (a *answers) warning(own string) string {
	if a.err == nil {
		return ""
	}
	reason := strings.Join(strings.Fields(a.err.Error()), " ")
	if errors.Is(a.err, rpctypes.ErrNoSpace) {
		reason += ": make room in etcd"
	}
	if len(a.missing) == 0 {
		return fmt.Sprintf("these are the reads of replica %s alone, others cannot be seen: %s", own, reason)
	}
	return fmt.Sprintf("the reads of %s are missing: %s", strings.Join(a.missing, ", "), reason)
}

// askNow asks the others and waits for them, if there are any.
func (e *Exchange) askNow(ctx context.Context) *answers {
	ctx, cancel := context.WithTimeout(ctx, e.patience)
	defer cancel()
	link := e.linked()
	if link.client == nil {
		return &answers{at: time.Now(), err: link.err}
	}
	others, err := e.others(ctx, link.client)
	if err != nil || len(others) == 0 {
		return &answers{at: time.Now(), err: err}
	}
	given := map[string]*kubeannex.ListProfileList{}
	if err = link.err; err == nil {
		err = e.collect(ctx, link, others, given)
	}
	result := &answers{at: time.Now(), err: err}
	for _, id := range slices.Sorted(maps.Keys(others)) {
		if list := given[id]; list != nil {
			list.Replicas = []string{others[id]}
			result.lists = append(result.lists, list)
			continue
		}
		result.missing = append(result.missing, others[id])
	}
	slices.Sort(result.missing)
	slices.SortFunc(result.lists, func(a, b *kubeannex.ListProfileList) int { return cmp.Compare(a.Replicas[0], b.Replicas[0]) })
	return result
}

// others are the names of the other processes that are there, by ID.
func (e *Exchange) others(ctx context.Context, client *clientv3.Client) (names map[string]string, err error) {
	names = map[string]string{}
	err = within(ctx, requestTimeout, "looking for other replicas", func(ctx context.Context) error {
		prefix := e.key(kindReplica, "")
		found, err := client.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range found.Kvs {
			id := strings.TrimPrefix(string(kv.Key), prefix)
			var told replica
			if id != e.id && json.Unmarshal(kv.Value, &told) == nil {
				names[id] = told.Name
			}
		}
		return nil
	})
	return distinct(names, e.name), err
}

// distinct adds the ID to names that are not unique: processes on one host, or in one
// pod one after the other, have the same.
func distinct(names map[string]string, own string) map[string]string {
	uses := map[string]int{own: 1}
	for _, name := range names {
		uses[name]++
	}
	for id, name := range names {
		if uses[name] > 1 {
			names[id] = name + "_" + id
		}
	}
	return names
}

// collect writes a question and waits for the answers of all others. What was given is
// complete if it returns no error.
func (e *Exchange) collect(ctx context.Context, link link, others map[string]string, given map[string]*kubeannex.ListProfileList) error {
	var asked int64
	err := within(ctx, requestTimeout, "asking by etcd", func(ctx context.Context) error {
		put, err := link.client.Put(ctx, e.key(kindQuestion, e.id), e.name, clientv3.WithLease(link.lease))
		if err == nil {
			asked = put.Header.GetRevision()
		}
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	prefix := e.key(kindAnswer, "")
	for response := range link.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(asked+1), clientv3.WithFilterDelete()) {
		if err := response.Err(); err != nil {
			return fmt.Errorf("waiting for answers: %w", err)
		}
		for _, event := range response.Events {
			id := strings.TrimPrefix(string(event.Kv.Key), prefix)
			if list, ok := decode(event.Kv.Value, asked); ok && others[id] != "" {
				given[id] = list
			}
		}
		if len(given) == len(others) {
			return nil
		}
	}
	return fmt.Errorf("no answer within %s; one that was killed is forgotten after %s", e.patience, e.leaseTTL)
}

// decode returns false for an answer that was given before the question, and for one
// that is none.
func decode(value []byte, asked int64) (*kubeannex.ListProfileList, bool) {
	var told answer
	if json.Unmarshal(value, &told) != nil || told.Asked < asked {
		return nil, false
	}
	list := &kubeannex.ListProfileList{}
	if v1alpha1.Convert_v1alpha1_ListProfileList_To_kubeannex_ListProfileList(&told.Profiles, list, nil) != nil {
		return nil, false
	}
	return list, true
}
