{{- define "capmaas.registry" -}}
{{ required "image.registry is missing: say where the images are, for instance --set image.registry=registry.example/capmaas" .Values.image.registry }}
{{- end }}

{{- define "capmaas.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
