package specs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each spec of Cluster API's own suite has a row in the book, and the book names no other.
func TestEverySpecIsInTheTable(t *testing.T) {
	listed, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api/test").Output()
	if err != nil {
		t.Fatal(err)
	}
	suites, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(listed)), "e2e", "*_test.go"))
	if err != nil || len(suites) == 0 {
		t.Fatalf("no suites: %v", err)
	}
	page, err := os.ReadFile("../../docs/cluster-api-specs.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (When .*?) \| `).FindAllStringSubmatch(string(page), -1) {
		rows[row[1]] = true
	}
	names := map[string]bool{}
	for _, suite := range suites {
		text, err := os.ReadFile(suite)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`Describe\("([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			names[name[1]] = true
			if !rows[name[1]] {
				t.Errorf("docs/cluster-api-specs.md lacks %q", name[1])
			}
		}
	}
	for row := range rows {
		if !names[row] {
			t.Errorf("docs/cluster-api-specs.md has %q, which is no spec", row)
		}
	}
}
