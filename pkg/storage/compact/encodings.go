// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// encoding is what an encoder makes of an Object.
type encoding struct {
	// plain says that it writes the JSON between before and after.
	plain         bool
	before, after string
	// metadataOnly says that it looks at nothing but the metadata.
	metadataOnly bool
}

// encodings knows the encoders of one group version by their identifiers. Upstream
// compares identifiers too, to share what is encoded (runtime.CacheableObject).
type encodings struct {
	version string
	known   sync.Map // encoding by runtime.Identifier
}

func newEncodings(version schema.GroupVersion) *encodings {
	return &encodings{version: version.Identifier()}
}

func (e *encodings) of(id runtime.Identifier) encoding {
	if known, ok := e.known.Load(id); ok {
		return known.(encoding)
	}
	found := e.parse(string(id))
	e.known.Store(id, found)
	return found
}

// identifier has the fields by which upstream's encoders name themselves: those of
// k8s.io/apimachinery pkg/runtime/serializer/{json,versioning} and of k8s.io/apiserver
// pkg/endpoints/handlers/response.go (watchEncoder, watchEmbeddedEncoder).
type identifier struct {
	Name            string `json:"name"`
	Encoder         string `json:"encoder"`
	EncodeGV        string `json:"encodeGV"`
	EmbeddedEncoder string `json:"embeddedEncoder"`
	EventType       string `json:"eventType"`
	Target          string `json:"target"`
	YAML            string `json:"yaml"`
	Pretty          string `json:"pretty"`
}

// isMetadata reports whether a watch is sent nothing but metadata.
func isMetadata(target string) bool {
	return target == "meta.k8s.io/v1, Kind=PartialObjectMetadata" || target == "meta.k8s.io/v1beta1, Kind=PartialObjectMetadata"
}

// parse returns the encoding that knows nothing for an encoder that it does not know.
func (e *encodings) parse(text string) encoding {
	var id identifier
	if err := json.Unmarshal([]byte(text), &id); err != nil {
		return encoding{}
	}
	switch id.Name {
	case "json":
		return encoding{plain: id.YAML == "false" && id.Pretty == "false", after: "\n"}
	case "versioning":
		if id.EncodeGV != e.version {
			return encoding{}
		}
		return e.parse(id.Encoder)
	case "watch-embedded":
		return encoding{metadataOnly: isMetadata(id.Target)}
	case "watch":
		embedded, event := e.parse(id.EmbeddedEncoder), e.parse(id.Encoder)
		if embedded.plain && (event.plain || e.encodesEvents(id.Encoder)) {
			return encoding{plain: true, before: `{"type":"` + id.EventType + `","object":`, after: "}\n"}
		}
		return encoding{metadataOnly: embedded.metadataOnly}
	default:
		return encoding{}
	}
}

// encodesEvents reports whether an encoder writes plain JSON of watch events, which have no version of their own.
func (e *encodings) encodesEvents(text string) bool {
	var id identifier
	if err := json.Unmarshal([]byte(text), &id); err != nil || id.Name != "versioning" {
		return false
	}
	return e.parse(id.Encoder).plain
}
