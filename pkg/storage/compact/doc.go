// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compact lets a watch cache keep custom resources as the JSON that clients are
// sent, instead of as trees of maps.
//
// The tree of an object takes several times the memory of its JSON, and is encoded anew for every
// list and every event. Here the cache holds objects of the type Object: the JSON, and beside it only
// what the cache itself looks at.
//
//	registry            Unstructured
//	  Front             turns what the cache answers into Unstructured, or leaves it as it is (Answer)
//	    Cacher          Object
//	      Back          turns what the cache suggests to a write into Unstructured
//	        etcd3 store Object by Codec, for whoever asks for an Object; else Unstructured
//
// Which read the cache answers, and when, is upstream's choice as before: nothing
// here looks at resource versions. Writes never become Objects.
package compact
