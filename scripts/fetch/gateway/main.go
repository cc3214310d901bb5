// A second S3 server for the tests: versitygw over a folder, on one port, until it is killed.
// What it is asked for belongs to tests/support/stores/fix_object_store.py; building it to scripts/fetch/s3_gateway.py.
package main

import (
	"context"
	"log"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: s3_gateway FOLDER PORT REGION; the keys are in S3_GATEWAY_ACCESS and S3_GATEWAY_SECRET")
	}
	folder, port, region := os.Args[1], os.Args[2], os.Args[3]
	attributes := meta.XattrMeta{}
	if err := attributes.Test(folder); err != nil {
		log.Fatalf("%s keeps no extended attributes: %v", folder, err)
	}
	backend, err := posix.New(folder, attributes, posix.PosixOpts{
		// Embedded, none means that every copy is too large.
		CopyObjectThreshold: 5 << 30,
		Concurrency:         64,
	})
	if err != nil {
		log.Fatal(err)
	}
	err = embedgw.RunVersityGW(context.Background(), backend, &embedgw.Config{
		RootUserAccess:    os.Getenv("S3_GATEWAY_ACCESS"),
		RootUserSecret:    os.Getenv("S3_GATEWAY_SECRET"),
		Region:            region,
		Ports:             []string{"127.0.0.1:" + port},
		MaxConnections:    10000,
		MaxRequests:       10000,
		MultipartMaxParts: 10000,
		KeepAlive:         true,
		Quiet:             true,
	})
	if err != nil {
		log.Fatal(err)
	}
}
