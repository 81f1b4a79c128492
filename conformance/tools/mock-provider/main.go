// Mock-provider serves the mock provider of the Secrets Store CSI driver's tests (package
// provider/fake) on a socket, so that conformance suites can test other drivers with it.
//
// Each line of standard input is a JSON object with the response to later mounts. The process
// prints "ready" when the response is set, and ends when standard input is closed.
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

type grpcError struct {
	Code    codes.Code `json:"code"`
	Message string     `json:"message"`
}

type mountResponse struct {
	Files     []file            `json:"files"`
	Objects   map[string]string `json:"objects"`
	ErrorCode string            `json:"error_code"`
	Refuse    *grpcError        `json:"refuse"`
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
	// A response may be larger than the default limit of gRPC messages, which is 4 MiB.
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var response mountResponse
		if err := json.Unmarshal(lines.Bytes(), &response); err != nil {
			return fmt.Errorf("parse a response: %w", err)
		}
		setResponse(server, response)
		fmt.Println("ready")
	}
	return lines.Err()
}

// setResponse sets the response to later mounts. The fields of the mock server have no lock, so it must not run
// during a mount.
func setResponse(server *fake.MockCSIProviderServer, response mountResponse) {
	files := make([]*v1alpha1.File, 0, len(response.Files))
	for _, entry := range response.Files {
		files = append(files, &v1alpha1.File{Path: entry.Path, Mode: entry.Mode, Contents: []byte(entry.Contents)})
	}
	server.SetFiles(files)
	server.SetObjects(response.Objects)
	server.SetProviderErrorCode(response.ErrorCode)
	if response.Refuse == nil {
		server.SetReturnError(nil)
	} else {
		server.SetReturnError(status.Error(response.Refuse.Code, response.Refuse.Message))
	}
}
