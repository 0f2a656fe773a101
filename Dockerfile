# Builds annex-apiserver, annex-controller and kubectl-annex, all static, on a base without shell or package manager.
# Both images can be exchanged, for example for copies on a mirror:
#   docker build --build-arg BUILD_IMAGE=... --build-arg BASE_IMAGE=... --build-arg VERSION=... .
ARG BUILD_IMAGE=golang:1.26
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM --platform=${BUILDPLATFORM:-linux/amd64} ${BUILD_IMAGE} AS build
ARG TARGETOS=linux
ARG TARGETARCH=amd64
WORKDIR /src
# Dependencies change less often than code: a layer of their own.
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY pkg pkg
# The release of annex. Programs also show the Kubernetes version whose behaviour they have.
ARG VERSION=unknown
RUN kubernetes=$(go list -m -f '{{.Version}}' k8s.io/apiserver | sed 's/^v0/v1/') \
    && CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
        -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=${kubernetes}+annex.${VERSION}" \
        -o /out/bin/ ./cmd/annex-apiserver ./cmd/annex-controller ./cmd/kubectl-annex \
    && mkdir -p /out/data

FROM ${BASE_IMAGE}
COPY --from=build /out/bin/ /usr/local/bin/
# The only folder that can be written to; mount a volume here to keep an embedded etcd.
COPY --from=build --chown=65532:65532 /out/data /var/lib/annex
WORKDIR /var/lib/annex
USER 65532:65532
# No entry point: whoever starts a container names one of the three programs.
