module lanyard.dev/conformance/tools/mock-provider

go 1.25.9

require (
	google.golang.org/grpc v1.79.3
	sigs.k8s.io/secrets-store-csi-driver v1.6.0
)

require (
	golang.org/x/net v0.48.0 // indirect
	golang.org/x/sys v0.42.0 // indirect
	golang.org/x/text v0.32.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251202230838-ff82c1b0f217 // indirect
	google.golang.org/protobuf v1.36.10 // indirect
)

// The module proxy does not serve the driver's logging module; ../mlog has the functions that the driver calls.
replace monis.app/mlog => ../mlog
