module lanyard.dev/conformance/tools/jsonschema

go 1.26.0

tool github.com/santhosh-tekuri/jsonschema/cmd/jv

require (
	github.com/santhosh-tekuri/jsonschema/cmd/jv v0.7.0 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.1 // indirect
	github.com/spf13/pflag v1.0.5 // indirect
	golang.org/x/text v0.14.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
