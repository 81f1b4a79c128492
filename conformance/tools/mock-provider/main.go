// Mock-provider runs the mock server that the Secrets Store CSI driver publishes for its own
// tests (package provider/fake) on a socket, so that other programs can be tried against it.
//
// Each line of standard input is one JSON object and replaces what the next mounts are
// answered with; a line "ready" on standard output says that it is in force. The process ends
// with its standard input.
//
//	{"files": [{"path": "a/b", "mode": 420, "contents": "…"}], "objects": {"id": "version"},
//	 "error_code": "", "refuse": {"code": 14, "message": "…"}}
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/secrets-store-csi-driver/provider/fake"
	"sigs.k8s.io/secrets-store-csi-driver/provider/v1alpha1"
)

type file struct {
	Path     string `json:"path"`
	Mode     int32  `json:"mode"`
	Contents string `json:"contents"`
}

type refusal struct {
	Code    codes.Code `json:"code"`
	Message string     `json:"message"`
}

type answer struct {
	Files     []file            `json:"files"`
	Objects   map[string]string `json:"objects"`
	ErrorCode string            `json:"error_code"`
	Refuse    *refusal          `json:"refuse"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mock-provider SOCKET")
		os.Exit(2)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "mock-provider:", err)
		os.Exit(1)
	}
}

func serve(socket string) error {
	server, err := fake.NewMocKCSIProviderServer(socket)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer server.Stop()

	lines := bufio.NewScanner(os.Stdin)
	// An answer may be larger than the 4 MiB that gRPC takes by default.
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var next answer
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			return fmt.Errorf("reading an answer: %w", err)
		}
		put(server, next)
		fmt.Println("ready")
	}
	return lines.Err()
}

// The mock server's fields have no lock: the caller changes the answer between mounts.
func put(server *fake.MockCSIProviderServer, next answer) {
	files := make([]*v1alpha1.File, 0, len(next.Files))
	for _, one := range next.Files {
		files = append(files, &v1alpha1.File{Path: one.Path, Mode: one.Mode, Contents: []byte(one.Contents)})
	}
	server.SetFiles(files)
	server.SetObjects(next.Objects)
	server.SetProviderErrorCode(next.ErrorCode)
	if next.Refuse == nil {
		server.SetReturnError(nil)
	} else {
		server.SetReturnError(status.Error(next.Refuse.Code, next.Refuse.Message))
	}
}
