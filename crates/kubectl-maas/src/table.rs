//! Columns as kubectl prints them.

/// The rows under their titles, each column as wide as its widest text. The last column is not padded.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = titles.iter().map(|title| title.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| -> String {
        let mut line = String::new();
        for (cell, width) in cells.zip(&widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width - cell.chars().count() + 3));
        }
        format!("{}\n", line.trim_end())
    };
    let mut all = line(&mut titles.iter().copied());
    for row in rows {
        all.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["longer".to_owned(), "x".to_owned()], vec![String::new(), "y".to_owned()]];
        assert_eq!(table(&["A", "B"], &rows), "A        B\nlonger   x\n         y\n");
    }
}
