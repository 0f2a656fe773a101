// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The subresources of AnnexedGroup beside status. They are for annex's own
// controller and speak JSON only.
const (
	// ImportSubresource takes objects (POST, a stream of metav1.WatchEvents in the
	// storage version, one JSON value after the other, ?resource=PLURAL) and drops
	// all objects of a resource, or of all (DELETE, ?resource=PLURAL or none).
	// It works only while the group is Closed, dropping also while it is Released.
	ImportSubresource = "import"
	// DigestSubresource computes the digest of what is stored (GET, ?resource=PLURAL).
	DigestSubresource = "digest"
	// ReplicaSubresource tells what the process that answers knows (GET).
	ReplicaSubresource = "replica"
)

// ImportResult is the answer to an import that succeeded. An import that fails
// is answered by a metav1.Status that names the object; what came before it is stored.
type ImportResult struct {
	// Written is the number of objects that were created or changed.
	Written int64 `json:"written"`
	// Unchanged is the number of objects that were there already.
	Unchanged int64 `json:"unchanged"`
	// Deleted is the number of objects that were deleted. One that was not there is not counted.
	Deleted int64 `json:"deleted"`
	// Digest is the digest of all objects of the request that were not deletions.
	Digest string `json:"digest"`
}

// ResourceDigest is what annex stores of one resource, read from etcd.
type ResourceDigest struct {
	// Resource is the plural name.
	Resource string `json:"resource"`
	// Objects is their number.
	Objects int64 `json:"objects"`
	// Bytes is their size as JSON.
	Bytes int64 `json:"bytes"`
	// Digest is independent of the order of objects and of their resource versions, see package digest.
	Digest string `json:"digest"`
}

// ReplicaStatus is what one annex-apiserver process knows of a group. The
// controller goes on to the next step when every replica agrees.
type ReplicaStatus struct {
	// Serving is the mode that this process applies.
	Serving ServingMode `json:"serving"`
	// Revision is the present revision of the etcd that stores the group.
	Revision int64 `json:"revision"`
	// DatabaseBytes is the size of that etcd's database, QuotaBytes its limit; 0 means unknown.
	DatabaseBytes int64 `json:"databaseBytes,omitempty"`
	QuotaBytes    int64 `json:"quotaBytes,omitempty"`
	// Resources are the group's resources that this process knows the definition of.
	// +listType=map
	// +listMapKey=resource
	Resources []ReplicaResource `json:"resources,omitempty"`
	// DisabledPlugins are the admission plug-ins, and PriorityAndFairness, that do nothing in this
	// process, because the cluster does not serve the objects that they live on.
	// +listType=set
	DisabledPlugins []string `json:"disabledPlugins,omitempty"`
}

// ReplicaResource is one resource as one process knows it.
type ReplicaResource struct {
	// Resource is the plural name.
	Resource string `json:"resource"`
	// DefinitionGeneration is the metadata.generation of the CustomResourceDefinition in annex.
	DefinitionGeneration int64 `json:"definitionGeneration"`
	// Established says that the definition is.
	Established bool `json:"established"`
	// Ready says that the stored version, and every other whose cache is in use, answers from a filled
	// cache, and that one object at least can be read in every served version. A version that nobody has
	// read yet has no cache; its first reader waits until it is filled.
	Ready bool `json:"ready"`
}
