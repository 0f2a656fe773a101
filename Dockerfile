# Builds a static annex-apiserver on a base without shell or package manager.
# Both images can be exchanged, for example for copies on a mirror:
#   docker build --build-arg BUILD_IMAGE=... --build-arg BASE_IMAGE=... .
ARG BUILD_IMAGE=golang:1.26
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM --platform=${BUILDPLATFORM:-linux/amd64} ${BUILD_IMAGE} AS build
ARG TARGETOS=linux
ARG TARGETARCH=amd64
# What `make image` stamps as version.
ARG LDFLAGS
WORKDIR /src
# Dependencies change less often than code: a layer of their own.
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY pkg pkg
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -buildvcs=false -ldflags "-s -w ${LDFLAGS}" -o /out/annex-apiserver ./cmd/annex-apiserver \
    && mkdir /out/data

FROM ${BASE_IMAGE}
COPY --from=build /out/annex-apiserver /usr/local/bin/annex-apiserver
# The only folder the server can write to; mount a volume here to keep an embedded etcd.
COPY --from=build --chown=65532:65532 /out/data /var/lib/annex
WORKDIR /var/lib/annex
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/annex-apiserver"]
