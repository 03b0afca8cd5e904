//! Text in columns, as Go's tabwriter aligns it: a column is a run of lines that have a cell there which a tab ends, so
//! that a line with fewer cells ends the columns to its right.

/// Lines with tab-separated cells to aligned text.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    minimum: usize,
    padding: usize,
    /// Widths that tables printed before had, which the next ones keep to. Only for output that goes on.
    remembered: Option<Vec<usize>>,
}

impl Columns {
    /// As `kubectl get` prints tables.
    pub(crate) fn table() -> Columns {
        Columns { minimum: 6, padding: 3, remembered: Some(Vec::new()) }
    }

    /// As `kubectl describe` prints everything.
    pub(crate) fn described() -> Columns {
        Columns { minimum: 0, padding: 2, remembered: None }
    }

    pub(crate) fn align(&mut self, text: &str) -> String {
        let lines: Vec<Vec<&str>> = text.split('\n').map(|line| line.split('\t').collect()).collect();
        let mut out = String::with_capacity(text.len() * 2);
        let mut widths = Vec::new();
        // A line of one cell ends all columns; format() finds the same borders by itself.
        self.format(&lines, &mut widths, 0, lines.len(), &mut out);
        // The last line has no end.
        out.pop();
        out
    }

    fn format(&mut self, lines: &[Vec<&str>], widths: &mut Vec<usize>, mut first: usize, end: usize, out: &mut String) {
        let column = widths.len();
        let has_cell = |line: &Vec<&str>| column + 1 < line.len();
        let mut this = first;
        while this < end {
            if !has_cell(&lines[this]) {
                this += 1;
                continue;
            }
            write_lines(&lines[first..this], widths, out);
            first = this;
            let mut width = self.minimum;
            while this < end && has_cell(&lines[this]) {
                width = width.max(lines[this][column].chars().count() + self.padding);
                this += 1;
            }
            if let Some(remembered) = &mut self.remembered {
                if remembered.len() <= column {
                    remembered.resize(column + 1, 0);
                }
                width = width.max(remembered[column]);
                remembered[column] = width;
            }
            widths.push(width);
            self.format(lines, widths, first, this, out);
            widths.pop();
            first = this;
        }
        write_lines(&lines[first..end], widths, out);
    }
}

fn write_lines(lines: &[Vec<&str>], widths: &[usize], out: &mut String) {
    for line in lines {
        for (index, cell) in line.iter().enumerate() {
            out.push_str(cell);
            if let Some(width) = widths.get(index).filter(|_| index + 1 < line.len()) {
                out.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_as_gos() {
        let mut table = Columns::table();
        assert_eq!(table.align("NAME\tREADY\ndb-1\t0/2\n"), "NAME   READY\ndb-1   0/2\n");
        // A later line keeps to the widths before it.
        assert_eq!(table.align("a\tb\n"), "a      b\n");
        assert_eq!(Columns::table().align("a\tb\t\n"), "a     b     \n");
        let described = Columns::described().align("Name:\tx\nContainers:\n  app:\n    Image:\ty\n    Ports:\t1\n");
        assert_eq!(described, "Name:  x\nContainers:\n  app:\n    Image:  y\n    Ports:  1\n");
        // A shorter line between ends the second column, not the first.
        let blocks = Columns { minimum: 0, padding: 1, remembered: None }.align("a\tbbb\tc\nd\te\nf\tg\th\n");
        assert_eq!(blocks, "a bbb c\nd e\nf g h\n");
    }
}
