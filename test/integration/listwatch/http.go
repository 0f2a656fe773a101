// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is a response that has been read to its end.
type answer struct {
	code   int
	header http.Header
	body   []byte
	took   time.Duration
}

// do sends a request past client-go, which would retry by itself.
func (w *World) do(ctx context.Context, method, path string, body any, header ...string) (answer, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, w.running.Config.Host+path, content)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	begin := time.Now()
	response, err := w.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return answer{code: response.StatusCode, header: response.Header, body: data, took: time.Since(begin)}, err
}

// must is do for requests that have to succeed; it decodes the answer into out
// unless out is nil.
func (w *World) must(ctx context.Context, method, path string, body, out any, header ...string) error {
	got, err := w.do(ctx, method, path, body, header...)
	if err != nil {
		return err
	}
	if got.code/100 != 2 {
		return fmt.Errorf("%s %s: %d %s", method, path, got.code, got.body)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(got.body, out)
}

// item holds the parts of an object that the tests compare.
type item struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       struct {
		Color string `json:"color"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type itemList struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metav1.ListMeta `json:"metadata"`
	Items      []item          `json:"items"`
}

// frame is one event of a watch.
type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// frames splits the body of a watch. A body that ends within a frame is an error.
func frames(body []byte) ([]frame, error) {
	var all []frame
	decoder := json.NewDecoder(bytes.NewReader(body))
	for {
		var next frame
		switch err := decoder.Decode(&next); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, err
		}
		all = append(all, next)
	}
}

// causesOf returns the causes of a failure as "field: type", sorted.
func causesOf(status metav1.Status) []string {
	causes := []string{}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			causes = append(causes, cause.Field+": "+string(cause.Type))
		}
	}
	slices.Sort(causes)
	return causes
}
