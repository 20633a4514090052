{{- define "penstock.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "penstock.labels" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.account" -}}
{{ .Values.serviceAccount.name | default (include "penstock.name" .) }}
{{- end }}

{{- define "penstock.tls" -}}
{{ if .Values.tls.selfMade }}{{ include "penstock.name" . }}-tls{{ else }}{{ .Values.tls.secret }}{{ end }}
{{- end }}

{{- define "penstock.image" -}}
{{- $image := .Values.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "penstock.claim" -}}
{{ .Values.journal.volume.claim | default (printf "%s-journal" (include "penstock.name" .)) }}
{{- end }}

{{- /* What belongs together and no schema can say; each is one sentence. */}}
{{- define "penstock.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is needed: build deploy/Containerfile, push the image, and name it here." }}
{{- end }}
{{- if not .Values.sites }}
{{- fail "sites is needed: give the sites file with --set-file sites=sites.yaml (penstock connect writes one)." }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (not .Values.journal.postgresSecret) }}
{{- fail "replicas above 1 need PostgreSQL: name a Secret with its address in journal.postgresSecret, or leave one replica." }}
{{- end }}
{{- if and .Values.admission.mutating (not .Values.admission.enabled) }}
{{- fail "admission.mutating needs admission.enabled." }}
{{- end }}
{{- if and .Values.admission.beta (not .Values.admission.mutating) }}
{{- fail "admission.beta says how admission.mutating is served; set both, or neither." }}
{{- end }}
{{- if and .Values.tls.selfMade .Values.tls.secret }}
{{- fail "tls.selfMade makes a certificate, and tls.secret names one; set one of them." }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}
{{- fail "ingress.host is needed: the name that people reach Penstock by." }}
{{- end }}
{{- if and .Values.rights.rent (eq .Values.rights.role "look") }}
{{- fail "rights.rent is not for looking; set rights.role to act or home." }}
{{- end }}
{{- if and .Values.rights.exec (eq .Values.rights.role "look") }}
{{- fail "rights.exec is not for looking; set rights.role to act or home." }}
{{- end }}
{{- end }}
