{{/* Copied by `cargo xtask codegen` from charts/lanyard-node/templates/_owner.tpl; do not edit. */}}
{{/* The owner of an object. All charts of lanyard use this file (`cargo xtask codegen` copies it). */}}

{{/* Whether an object belongs to this release. Takes a list: the root context, the object. */}}
{{- define "lanyard.isOwnedByRelease" -}}
{{- $root := index . 0 }}
{{- $annotations := (index . 1).metadata.annotations | default dict }}
{{- if and (eq (get $annotations "meta.helm.sh/release-name") $root.Release.Name)
           (eq (get $annotations "meta.helm.sh/release-namespace") $root.Release.Namespace) }}true{{ end }}
{{- end }}

{{/* The owner of an object, as text. */}}
{{- define "lanyard.owner" -}}
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
{{- else }}an unknown owner{{ end }}
{{- end }}

{{/* How to transfer an object to this release, as text. Takes the root context. */}}
{{- define "lanyard.adoption" -}}
to take it over, give it the label app.kubernetes.io/managed-by=Helm and the annotations meta.helm.sh/release-name={{ .Release.Name }} and meta.helm.sh/release-namespace={{ .Release.Namespace }}
{{- end }}
