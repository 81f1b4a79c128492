{{/*
Objects that every driver of this name shares belong to one manager at a time. What another one made
is never changed: the release stops before anything is written, and says whose it is.
Without a cluster (`helm template`, Argo CD) nothing is known and everything is rendered that
`csiDriver.enabled` and `linux.crds.enabled` do not leave out.
*/}}

{{/* Whether an object is this release's. Takes a list: the root context, the object. */}}
{{- define "lanyard-node.isOurs" -}}
{{- $root := index . 0 }}
{{- $annotations := (index . 1).metadata.annotations | default dict }}
{{- if and (eq (get $annotations "meta.helm.sh/release-name") $root.Release.Name)
           (eq (get $annotations "meta.helm.sh/release-namespace") $root.Release.Namespace) }}true{{ end }}
{{- end }}

{{/* Who made an object, in words. */}}
{{- define "lanyard-node.owner" -}}
{{- $metadata := .metadata }}
{{- $annotations := $metadata.annotations | default dict }}
{{- $labels := $metadata.labels | default dict }}
{{- $managers := list }}
{{- range $metadata.managedFields }}{{ $managers = append $managers .manager }}{{ end }}
{{- if get $annotations "meta.helm.sh/release-name" }}
{{- printf "the Helm release %s/%s" (get $annotations "meta.helm.sh/release-namespace") (get $annotations "meta.helm.sh/release-name") }}
{{- else if $metadata.ownerReferences }}
{{- with first $metadata.ownerReferences }}{{ printf "%s %s" .kind .name }}{{ end }}
{{- else if get $labels "addonmanager.kubernetes.io/mode" }}
{{- printf "the add-on manager of the platform (label addonmanager.kubernetes.io/mode=%s)" (get $labels "addonmanager.kubernetes.io/mode") }}
{{- else if get $labels "app.kubernetes.io/managed-by" }}
{{- printf "%s (label app.kubernetes.io/managed-by)" (get $labels "app.kubernetes.io/managed-by") }}
{{- else if $managers }}
{{- printf "the field manager %s" ($managers | uniq | join ", ") }}
{{- else }}somebody who left no name{{ end }}
{{- end }}

{{/* How an object becomes this release's. Takes the root context. */}}
{{- define "lanyard-node.adoption" -}}
to take it over, give it the label app.kubernetes.io/managed-by=Helm and the annotations meta.helm.sh/release-name={{ .Release.Name }} and meta.helm.sh/release-namespace={{ .Release.Namespace }}
{{- end }}

{{/* Stops unless an object of the driver's name is ours or absent. */}}
{{- define "lanyard-node.guardDriver" -}}
{{- $driver := lookup "storage.k8s.io/v1" "CSIDriver" "" .Values.driverName }}
{{- if and $driver (not (include "lanyard-node.isOurs" (list . $driver))) }}
{{- fail (printf "the CSIDriver %s belongs to %s, and is left as it is. Run beside it with another driverName (such as node.lanyard.dev), or remove the other driver first; %s; to let its owner keep it, set csiDriver.enabled=false" .Values.driverName (include "lanyard-node.owner" $driver) (include "lanyard-node.adoption" .)) }}
{{- end }}
{{- end }}

{{/* Whether a CRD is to be written. Takes a list: the root context, the name of the CRD. */}}
{{- define "lanyard-node.writesCrd" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- if $root.Values.linux.crds.enabled }}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
{{- if or (not $crd) (include "lanyard-node.isOurs" (list $root $crd)) }}true
{{- else if not (include "lanyard-node.isBeside" $root) }}
{{- fail (printf "the CustomResourceDefinition %s belongs to %s, and is left as it is. To work with it, set linux.crds.enabled=false; %s" $name (include "lanyard-node.owner" $crd) (include "lanyard-node.adoption" $root)) }}
{{- end }}
{{- end }}
{{- end }}
