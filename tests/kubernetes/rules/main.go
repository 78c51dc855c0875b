// Command rules runs Prometheus' own rule engine over made-up series: what the chart's rules and the dashboard's queries
// say is judged by it, not by a reading of their text.
//
// It reads a scenario as JSON from standard input and writes what came of it as JSON to standard output.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// Scenario is what there is to evaluate, from the time 0 on.
type Scenario struct {
	Rules   []string          `json:"rules"`   // files
	Series  map[string]string `json:"series"`  // values in promtool's notation, by name and labels
	Step    int               `json:"step"`    // seconds between two samples, and between two evaluations
	Until   int               `json:"until"`   // seconds
	Queries []string          `json:"queries"` // evaluated at the end
}

// Alert is an alert that fired, once for each set of labels.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Since       int               `json:"since"` // seconds: the first evaluation at which it fired
	Last        int               `json:"last"`  // seconds: the last one
}

// Sample is a value of a query.
type Sample struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

// Outcome is what came of a scenario.
type Outcome struct {
	Alerts  []*Alert   `json:"alerts"`
	Queries [][]Sample `json:"queries"`
}

func main() {
	var scenario Scenario
	if err := json.NewDecoder(os.Stdin).Decode(&scenario); err != nil {
		fail(err)
	}
	outcome, err := run(context.Background(), scenario)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(outcome); err != nil {
		fail(err)
	}
}

func run(ctx context.Context, scenario Scenario) (*Outcome, error) {
	step := time.Duration(scenario.Step) * time.Second
	load := []string{fmt.Sprintf("load %ds", scenario.Step)}
	for name, values := range scenario.Series {
		load = append(load, fmt.Sprintf("  %s %s", name, values))
	}
	language := parser.NewParser(parser.Options{})
	store, err := promqltest.NewLazyLoader(strings.Join(load, "\n"), promqltest.LazyLoaderOpts{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	groups, err := loaded(ctx, scenario.Rules, step, store, language)
	if err != nil {
		return nil, err
	}
	outcome := &Outcome{Alerts: []*Alert{}, Queries: [][]Sample{}}
	firing := map[string]*Alert{}
	for second := 0; second <= scenario.Until; second += scenario.Step {
		var broken error
		store.WithSamplesTill(time.Unix(int64(second), 0).UTC(), func(err error) {
			if broken = err; broken == nil {
				broken = evaluated(ctx, groups, second, firing, outcome)
			}
		})
		if broken != nil {
			return nil, broken
		}
	}
	end := time.Unix(int64(scenario.Until), 0).UTC()
	for _, text := range scenario.Queries {
		samples, err := queried(ctx, store, text, end)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		outcome.Queries = append(outcome.Queries, samples)
	}
	return outcome, nil
}

func loaded(
	ctx context.Context, files []string, step time.Duration, store *promqltest.LazyLoader, language parser.Parser,
) ([]*rules.Group, error) {
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(store.QueryEngine(), store.Storage()),
		Appendable: store.Storage(),
		Context:    ctx,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     promslog.NewNopLogger(),
		Parser:     language,
	})
	found, errs := manager.LoadGroups(step, labels.EmptyLabels(), "", nil, false, files...)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	groups := make([]*rules.Group, 0, len(found))
	for _, group := range found {
		for _, rule := range group.Rules() {
			if alert, ok := rule.(*rules.AlertingRule); ok {
				alert.SetRestored(true) // nothing was pending before the time 0
			}
		}
		groups = append(groups, group)
	}
	// Prometheus evaluates groups independently; here always in the same order.
	slices.SortFunc(groups, func(a, b *rules.Group) int { return strings.Compare(a.Name(), b.Name()) })
	return groups, nil
}

func evaluated(ctx context.Context, groups []*rules.Group, second int, firing map[string]*Alert, outcome *Outcome) error {
	for _, group := range groups {
		group.Eval(ctx, time.Unix(int64(second), 0).UTC())
		for _, rule := range group.Rules() {
			if err := rule.LastError(); err != nil {
				return fmt.Errorf("%s: %w", rule.Name(), err)
			}
			alerting, ok := rule.(*rules.AlertingRule)
			if !ok {
				continue
			}
			for _, active := range alerting.ActiveAlerts() {
				if active.State != rules.StateFiring {
					continue
				}
				key := active.Labels.String()
				if firing[key] == nil {
					firing[key] = &Alert{Labels: active.Labels.Map(), Annotations: active.Annotations.Map(), Since: second}
					outcome.Alerts = append(outcome.Alerts, firing[key])
				}
				firing[key].Last = second
			}
		}
	}
	return nil
}

func queried(ctx context.Context, store *promqltest.LazyLoader, text string, at time.Time) ([]Sample, error) {
	query, err := store.QueryEngine().NewInstantQuery(ctx, store.Queryable(), nil, text, at)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	samples := []Sample{}
	switch value := result.Value.(type) {
	case promql.Vector:
		for _, sample := range value {
			samples = append(samples, Sample{Labels: sample.Metric.Map(), Value: sample.F})
		}
	case promql.Scalar:
		samples = append(samples, Sample{Labels: map[string]string{}, Value: value.V})
	default:
		return nil, fmt.Errorf("gives a %s", value.Type())
	}
	return samples, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
