//! Go templates, as far as people use them with kubectl: fields, variables, pipelines, `if`, `with`, `range`, and Go's
//! functions with the two that kubectl adds.

mod parse;
mod run;

use serde_json::Value;

pub(super) use parse::Template;

impl Template {
    pub(crate) fn print(&self, object: &Value) -> Result<String, String> {
        run::run(self, object)
    }

    pub(crate) fn strict(self, strict: bool) -> Template {
        Template { strict, ..self }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_print_as_gos() {
        let object = json!({"name": "a", "n": 2, "yes": true, "f": 1.5, "list": ["x", "y"], "map": {"k": "v", "b": "w"}, "data": "aGk="});
        let check = |template: &str, expected: &str| {
            let parsed = Template::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
            assert_eq!(parsed.print(&object).as_deref(), Ok(expected), "{template}");
        };
        check("{{.name}}-{{.n}}", "a-2");
        check("{{range .list}}{{.}} {{end}}", "x y ");
        check("{{range $i, $e := .list}}{{$i}}={{$e}};{{end}}", "0=x;1=y;");
        check("{{range $k, $v := .map}}{{$k}}={{$v}};{{end}}", "b=w;k=v;");
        check("{{range .none}}x{{else}}empty{{end}}", "empty");
        check("{{if .yes}}1{{else}}2{{end}}{{if .none}}1{{else if eq .n 2}}two{{end}}", "1two");
        check("{{len .list}} {{index .list 1}} {{index .map \"k\"}}", "2 y v");
        check("{{with .map}}{{.k}}{{$.name}}{{end}}", "va");
        check("{{.data | base64decode}}", "hi");
        check("{{printf \"%s/%d %v %q\" .name .n .yes .name}}", "a/2 true \"a\"");
        check("{{and .yes (not .none)}} {{or .none \"x\"}}", "true x");
        check("{{$x := .n}}{{if gt $x 1}}big{{end}}", "big");
        check("a {{- /* nothing */ -}} b", "ab");
        check("{{\"quoted\\n\"}}{{`raw`}}{{.f}}", "quoted\nraw1.5");
        check("{{.missing}}", "<no value>");
        check("{{.map}} {{.list}}", "map[b:w k:v] [x y]");
        check("{{if exists . \"map\" \"k\"}}there{{end}}", "there");
        check("{{range .list}}{{if eq . \"y\"}}{{break}}{{end}}{{.}}{{end}}", "x");
        assert!(Template::parse("{{if .x}}").is_err());
        assert!(Template::parse("{{nothing .x}}").is_err());
    }
}
