{{- define "thermocline.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "thermocline.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "thermocline.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "thermocline.account" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "thermocline.name" .) }}
{{- else -}}{{ .Values.serviceAccount.name | default "default" }}{{- end -}}
{{- end -}}

{{- define "thermocline.secret" -}}
{{- if .Values.existingSecret -}}{{ .Values.existingSecret }}
{{- else if .Values.secretEnv -}}{{ include "thermocline.name" . }}{{- end -}}
{{- end -}}

{{/* Pods are replaced when what they read at start changes. */}}
{{- define "thermocline.checksums" -}}
checksum/config: {{ .Values.config | sha256sum }}
checksum/secret: {{ .Values.secretEnv | toJson | sha256sum }}
{{- end -}}

{{- define "thermocline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "thermocline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
