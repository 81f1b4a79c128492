{{/*
The CRDs have one manager at a time. The chart never changes the CRDs of another manager: the installation fails
before it writes an object, and names the owner. Without a cluster (`helm template`, Argo CD) the owner is
unknown, and only the values below `crds` decide what is rendered.
*/}}

{{/* The value below `crds` that selects a CRD. Takes the API group of the CRD. */}}
{{- define "lanyard-operator.crdValue" -}}
{{- if eq . "hypershift.openshift.io" }}hypershift
{{- else if eq . "lanyard.dev" }}identities
{{- else if eq . "secrets-store.csi.x-k8s.io" }}secretsStore
{{- else }}{{ fail (printf "no value selects the CRDs of the API group %s" .) }}
{{- end }}
{{- end }}

{{/*
Whether a value below `crds` enables its CRDs. Takes a list: the root context, the value. By default, the CRDs
of HyperShift are enabled with `role: all`.
*/}}
{{- define "lanyard-operator.installsCrds" -}}
{{- $root := index . 0 }}
{{- $enabled := get $root.Values.crds (index . 1) }}
{{- if kindIs "bool" $enabled }}
{{- if $enabled }}true{{ end }}
{{- else if eq $root.Values.role "all" }}true{{ end }}
{{- end }}

{{/* Whether to render a CRD. Takes a list: the root context, the CRD. */}}
{{- define "lanyard-operator.writesCrd" -}}
{{- $root := index . 0 }}
{{- $crd := index . 1 }}
{{- $value := include "lanyard-operator.crdValue" $crd.spec.group | trim }}
{{- if include "lanyard-operator.installsCrds" (list $root $value) }}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $crd.metadata.name }}
{{- if or (not $found) (include "lanyard.isOwnedByRelease" (list $root $found)) }}true
{{- else }}
{{- fail (printf "the CustomResourceDefinition %s belongs to %s, so the chart does not change it. To use it as it is, set crds.%s=false; %s" $crd.metadata.name (include "lanyard.owner" $found) $value (include "lanyard.adoption" $root)) }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Fails if another release with `role: all` serves the cluster, or if a ClusterRole that the operator binds has
another owner. Two such releases would write the same objects, and the uninstallation of one would remove the
permissions of all canaries.
*/}}
{{- define "lanyard-operator.requireSingleRelease" -}}
{{- range $name := list "lanyard-canary" "lanyard-control-plane" }}
{{- $found := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" $name }}
{{- if and $found (not (include "lanyard.isOwnedByRelease" (list $ $found))) }}
{{- fail (printf "the ClusterRole %s belongs to %s, so the chart does not change it. One release with role=all serves every HostedCluster of a cluster: remove the other one first. If another tool creates the permissions, set rbac.install=false; %s" $name (include "lanyard.owner" $found) (include "lanyard.adoption" $)) }}
{{- end }}
{{- end }}
{{- end }}
