// Command check reads what this folder deploys the way the real tools do, without a cluster or a Docker daemon.
//
//	check chart DIR [VALUES]   lints and renders with Helm's own packages, decodes every manifest into the
//	                           Kubernetes types (unknown and doubled fields are errors), prints them as JSON
//	check compose FILE         loads with Docker Compose's own loader, prints the resolved project as JSON
//	check rules FILE           reads alerting rules strictly, their expressions with Prometheus' own parser; prints
//	                           each rule with the labels of every metric it selects
//	check promql FILE          the same for a JSON array of expressions
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"sort"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: check chart DIR [VALUES] | check compose FILE | check rules FILE | check promql FILE"))
	}
	var found any
	var err error
	switch os.Args[1] {
	case "chart":
		found, err = chart(os.Args[2], os.Args[3:])
	case "compose":
		found, err = compose(os.Args[2])
	case "rules":
		found, err = rules(os.Args[2])
	case "promql":
		found, err = expressions(os.Args[2])
	default:
		err = fmt.Errorf("there is no check %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func chart(dir string, valueFiles []string) ([]runtime.Object, error) {
	values := map[string]any{}
	for _, file := range valueFiles {
		given, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, err
		}
		values = chartutil.CoalesceTables(given, values)
	}
	for _, message := range lint.All(dir, values, "default", true).Messages {
		if message.Severity >= support.WarningSev {
			return nil, message
		}
	}
	loaded, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "try", Namespace: "default", IsInstall: true}
	merged, err := chartutil.ToRenderValues(loaded, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(loaded, merged)
	if err != nil {
		return nil, err
	}
	return decode(rendered)
}

func decode(rendered map[string]string) ([]runtime.Object, error) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	files := make([]string, 0, len(rendered))
	for file := range rendered {
		if ext := path.Ext(file); ext == ".yaml" {
			files = append(files, file)
		}
	}
	sort.Strings(files)
	var objects []runtime.Object
	for _, file := range files {
		parts := releaseutil.SplitManifests(rendered[file])
		names := make([]string, 0, len(parts))
		for name := range parts {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			if strings.TrimSpace(parts[name]) == "" {
				continue
			}
			object, _, err := decoder.Decode([]byte(parts[name]), nil, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

func compose(file string) (any, error) {
	// As docker compose does: versions come from .env beside the file.
	options, err := cli.NewProjectOptions([]string{file}, cli.WithName("try"), cli.WithEnvFiles(), cli.WithDotEnv)
	if err != nil {
		return nil, err
	}
	return options.LoadProject(context.Background())
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Metrics holds, for each metric that the expression selects, the labels it is selected by.
	Metrics map[string]map[string]string `json:"metrics"`
}

func rules(file string) ([]rule, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var document struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(text, &document); err != nil {
		return nil, err
	}
	var all []rule
	for _, group := range document.Groups {
		for _, each := range group.Rules {
			if each.Metrics, err = metrics(each.Expr); err != nil {
				return nil, fmt.Errorf("%s: %w", each.Alert, err)
			}
			if _, err := model.ParseDuration(each.For); err != nil {
				return nil, fmt.Errorf("%s: %w", each.Alert, err)
			}
			all = append(all, each)
		}
	}
	return all, nil
}

func expressions(file string) ([]map[string]map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var exprs []string
	if err := json.Unmarshal(text, &exprs); err != nil {
		return nil, err
	}
	all := make([]map[string]map[string]string, len(exprs))
	for number, expr := range exprs {
		if all[number], err = metrics(expr); err != nil {
			return nil, fmt.Errorf("%s: %w", expr, err)
		}
	}
	return all, nil
}

func metrics(expr string) (map[string]map[string]string, error) {
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	selected := map[string]map[string]string{}
	for _, matchers := range parser.ExtractSelectors(parsed) {
		name := ""
		for _, matcher := range matchers {
			if matcher.Name == labels.MetricName {
				name = matcher.Value
			}
		}
		if selected[name] == nil {
			selected[name] = map[string]string{}
		}
		for _, matcher := range matchers {
			if matcher.Name != labels.MetricName {
				selected[name][matcher.Name] = matcher.Value
			}
		}
	}
	return selected, nil
}
