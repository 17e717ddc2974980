//! Lines of a stream, one after another.

use std::io::{self, BufRead, ErrorKind};

/// The lines of a reader, without their line feeds, each as soon as it is complete. Of a line that is longer than a
/// limit, the beginning is kept. After an error there is no further line.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    limit: usize,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    /// The lines of `reader`, of each at most `limit` bytes.
    pub fn new(reader: R, limit: usize) -> Self {
        Self { reader, limit, ended: false }
    }

    /// The next line, and whether there was one.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let (mut line, mut begun) = (Vec::new(), false);
        loop {
            let bytes = match self.reader.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            if bytes.is_empty() {
                return Ok(begun.then_some(line));
            }
            let (part, end) = match bytes.iter().position(|&byte| byte == b'\n') {
                Some(at) => (&bytes[..at], Some(at + 1)),
                None => (bytes, None),
            };
            line.extend_from_slice(&part[..part.len().min(self.limit - line.len())]);
            let taken = end.unwrap_or(bytes.len());
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(Some(line));
            }
            begun = true;
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let line = self.read().transpose();
        self.ended = !matches!(line, Some(Ok(_)));
        line
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn lines(text: &[u8], limit: usize) -> Vec<Vec<u8>> {
        // A buffer that no line fits in.
        Lines::new(BufReader::with_capacity(2, text), limit).map(Result::unwrap).collect()
    }

    #[test]
    fn lines_come_one_by_one_and_the_last_one_needs_no_line_feed() {
        assert_eq!(lines(b"one\n\nthree", 10), [b"one".to_vec(), b"".to_vec(), b"three".to_vec()]);
        assert_eq!(lines(b"one\n", 10), [b"one".to_vec()]);
        assert!(lines(b"", 10).is_empty());
    }

    #[test]
    fn of_a_long_line_the_beginning_is_kept() {
        assert_eq!(lines(b"123456789\nnext\n", 4), [b"1234".to_vec(), b"next".to_vec()]);
        assert_eq!(lines(&[b'x'; 100_000], 3), [b"xxx".to_vec()]);
    }
}
