{{/*
Definitions that every operator of these kinds shares belong to one manager at a time. What another one
made is never changed: the release stops before anything is written, and says whose it is.
Without a cluster (`helm template`, Argo CD) nothing is known and everything is rendered that `crds`
does not leave out.
*/}}

{{/* The value that decides about a definition. Takes its API group. */}}
{{- define "lanyard-operator.crdValue" -}}
{{- if eq . "hypershift.openshift.io" }}hypershift
{{- else if eq . "lanyard.dev" }}identities
{{- else if eq . "secrets-store.csi.x-k8s.io" }}secretsStore
{{- else }}{{ fail (printf "no value decides about definitions of %s" .) }}
{{- end }}
{{- end }}

{{/*
Whether the definitions that a value decides about are wished. Takes a list: the root context, the value.
Those of HyperShift are by default where the operator does its work.
*/}}
{{- define "lanyard-operator.wishesCrds" -}}
{{- $root := index . 0 }}
{{- $asked := get $root.Values.crds (index . 1) }}
{{- if kindIs "bool" $asked }}
{{- if $asked }}true{{ end }}
{{- else if eq $root.Values.role "all" }}true{{ end }}
{{- end }}

{{/* Whether a definition is to be written. Takes a list: the root context, the definition. */}}
{{- define "lanyard-operator.writesCrd" -}}
{{- $root := index . 0 }}
{{- $crd := index . 1 }}
{{- $value := include "lanyard-operator.crdValue" $crd.spec.group | trim }}
{{- if include "lanyard-operator.wishesCrds" (list $root $value) }}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $crd.metadata.name }}
{{- if or (not $found) (include "lanyard.isOurs" (list $root $found)) }}true
{{- else }}
{{- fail (printf "the CustomResourceDefinition %s belongs to %s, and is left as it is. To work with it, set crds.%s=false; %s" $crd.metadata.name (include "lanyard.owner" $found) $value (include "lanyard.adoption" $root)) }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Stops where another release with `role: all` serves the cluster, or somebody else made the rights of
canaries: two would write the same objects, and the canaries of both lose their rights with the first one
that goes.
*/}}
{{- define "lanyard-operator.isOnlyOne" -}}
{{- $found := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "lanyard-canary" }}
{{- if and $found (not (include "lanyard.isOurs" (list . $found))) }}
{{- fail (printf "the ClusterRole lanyard-canary belongs to %s, and is left as it is. One release with role=all serves every HostedCluster of a cluster: remove the other one first. Where somebody else makes the rights, set rbac.install=false; %s" (include "lanyard.owner" $found) (include "lanyard.adoption" .)) }}
{{- end }}
{{- end }}
