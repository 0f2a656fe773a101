// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import "testing"

func TestFieldSelectors(t *testing.T) { CheckFieldSelectors(t, shared) }

func TestListMetadata(t *testing.T) { CheckListMetadata(t, shared) }

func TestPages(t *testing.T) { CheckPages(t, shared) }

func TestExpiredToken(t *testing.T) { CheckExpiredToken(t, shared) }

func TestMalformed(t *testing.T) { CheckMalformed(t, shared) }
