//! On which line each field of a YAML document stands, by its path, so that errors in files can say where they are.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser};

/// Documents with more fields get no lines; files that people write are far smaller.
const FIELDS_MAX: usize = 100_000;

enum Frame {
    List { path: String, next: usize },
    Map { path: String, key: Option<String> },
}

/// `jwt[0].issuer.url` to its line, counted from one. A document that cannot be read has the lines before the mistake.
pub fn lines(body: &str) -> HashMap<String, usize> {
    let mut lines = HashMap::new();
    let mut stack: Vec<Frame> = Vec::new();
    for event in Parser::new_from_str(body.trim_start_matches('\u{feff}')) {
        let Ok((event, span)) = event else { break };
        if lines.len() >= FIELDS_MAX {
            break;
        }
        let line = span.start.line();
        match event {
            Event::Scalar(text, ..) => match stack.last_mut() {
                Some(Frame::Map { path, key: key @ None }) => {
                    let own = joined(path, &text);
                    lines.insert(own, line);
                    *key = Some(text.into_owned());
                }
                _ => drop(value_path(&mut stack, &mut lines, line)),
            },
            Event::Alias(_) => drop(value_path(&mut stack, &mut lines, line)),
            Event::SequenceStart(..) => {
                let path = value_path(&mut stack, &mut lines, line);
                stack.push(Frame::List { path, next: 0 });
            }
            Event::MappingStart(..) => {
                let path = value_path(&mut stack, &mut lines, line);
                stack.push(Frame::Map { path, key: None });
            }
            Event::SequenceEnd | Event::MappingEnd => drop(stack.pop()),
            Event::DocumentEnd | Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
        }
    }
    lines
}

/// The path of the value that comes now.
fn value_path(stack: &mut [Frame], lines: &mut HashMap<String, usize>, line: usize) -> String {
    match stack.last_mut() {
        None => String::new(),
        Some(Frame::List { path, next }) => {
            let own = format!("{path}[{next}]");
            *next += 1;
            lines.insert(own.clone(), line);
            own
        }
        Some(Frame::Map { path, key }) => joined(path, &key.take().unwrap_or_default()),
    }
}

fn joined(path: &str, field: &str) -> String {
    match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_lines() {
        let text = "# comment\na: 1\nb:\n- c: x\n  d:\n  - y\n- c: {e: z}\nf: [1, {g: 2}]\n";
        let lines = lines(text);
        let check = |path: &str, line: usize| assert_eq!(lines.get(path), Some(&line), "{path}: {lines:?}");
        check("a", 2);
        check("b", 3);
        check("b[0]", 4);
        check("b[0].c", 4);
        check("b[0].d[0]", 6);
        check("b[1].c.e", 7);
        check("f[1].g", 8);
    }

    #[test]
    fn mistakes_end_the_lines_and_nothing_else() {
        assert_eq!(lines("a: 1\nb: [").get("a"), Some(&1));
        assert!(lines("").is_empty());
        assert!(lines("just text").is_empty());
    }
}
