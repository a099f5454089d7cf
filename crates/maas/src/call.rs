//! A request before it is signed: what to send, and how to interpret a refusal.

use bytes::Bytes;
use http::Method;
use secrecy::{ExposeSecret, SecretString};

use crate::classify::Asked;
use crate::error::{Error, Result};
use crate::redaction::Redaction;

/// Contains secrets in its form, so it has no Debug.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) operation: &'static str,
    pub(crate) template: &'static str,
    object: &'static [&'static str],
    path: String,
    query: Vec<(String, String)>,
    form: Vec<(String, SecretString)>,
    secrets: Vec<SecretString>,
}

#[allow(clippy::needless_pass_by_value, reason = "numbers, texts and references alike are written where they are used")]
impl Call {
    /// `template` is the path below the API's root, with `{}` placeholders that `arguments` fill in order, and with the
    /// `op` of the request: `machines/{system_id}/?op=deploy`.
    ///
    /// An argument must not be empty: `machines//` is the list of all machines, and it must not be left to MAAS to
    /// reject a DELETE of it.
    pub(crate) fn new(
        method: Method,
        operation: &'static str,
        template: &'static str,
        arguments: &[&str],
    ) -> Result<Self> {
        let (path_template, op) = match template.split_once("?op=") {
            Some((path, op)) => (path, Some(op)),
            None => (template, None),
        };
        let mut path = String::new();
        let mut arguments = arguments.iter();
        let mut rest = path_template;
        while let Some((before, after)) = rest.split_once('{') {
            path.push_str(before);
            let argument = arguments.next().copied().unwrap_or_default();
            if argument.is_empty() || argument == "." || argument == ".." {
                let name = after.split_once('}').map_or(after, |(name, _)| name);
                return Err(Error::refused(operation, format!("the {name} {argument:?} names nothing")));
            }
            push_escaped(&mut path, argument);
            rest = after.split_once('}').map_or("", |(_, rest)| rest);
        }
        path.push_str(rest);
        Ok(Self {
            method,
            operation,
            template,
            object: &[],
            path,
            query: op.map(|op| ("op".to_owned(), op.to_owned())).into_iter().collect(),
            form: Vec::new(),
            secrets: Vec::new(),
        })
    }

    pub(crate) fn get(operation: &'static str, template: &'static str, arguments: &[&str]) -> Result<Self> {
        Self::new(Method::GET, operation, template, arguments)
    }

    pub(crate) fn post(operation: &'static str, template: &'static str, arguments: &[&str]) -> Result<Self> {
        Self::new(Method::POST, operation, template, arguments)
    }

    pub(crate) fn put(operation: &'static str, template: &'static str, arguments: &[&str]) -> Result<Self> {
        Self::new(Method::PUT, operation, template, arguments)
    }

    pub(crate) fn delete(operation: &'static str, template: &'static str, arguments: &[&str]) -> Result<Self> {
        Self::new(Method::DELETE, operation, template, arguments)
    }

    /// MAAS's names for the object of the path: a 404 that contains one of them means that the object does not exist.
    pub(crate) fn of(mut self, object: &'static [&'static str]) -> Self {
        self.object = object;
        self
    }

    pub(crate) fn query(mut self, name: &str, value: impl ToString) -> Self {
        self.query.push((name.to_owned(), value.to_string()));
        self
    }

    pub(crate) fn query_all(self, name: &str, values: impl IntoIterator<Item = impl ToString>) -> Self {
        values.into_iter().fold(self, |call, value| call.query(name, value))
    }

    pub(crate) fn field(mut self, name: &str, value: impl ToString) -> Self {
        self.form.push((name.to_owned(), value.to_string().into()));
        self
    }

    /// A field that is sent only if it is set.
    pub(crate) fn maybe(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    /// MAAS takes a list as repeated keys.
    pub(crate) fn fields(self, name: &str, values: impl IntoIterator<Item = impl ToString>) -> Self {
        values.into_iter().fold(self, |call, value| call.field(name, value))
    }

    /// A switch that is sent only if it is on.
    pub(crate) fn flag(self, name: &str, on: bool) -> Self {
        if on { self.field(name, true) } else { self }
    }

    /// A field whose value must not appear anywhere else.
    pub(crate) fn secret(mut self, name: &str, value: &SecretString) -> Self {
        self.form.push((name.to_owned(), value.clone()));
        self.secrets.push(value.clone());
        self
    }

    /// Hides the plain form of a secret that is sent encoded.
    pub(crate) fn hiding(mut self, value: &str) -> Self {
        self.secrets.push(value.into());
        self
    }

    pub(crate) fn asked(&self) -> Asked {
        Asked { operation: self.operation, read_only: self.method == Method::GET, object: self.object }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn encoded_query(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish()
    }

    pub(crate) fn body(&self) -> Bytes {
        let mut serializer = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.form {
            serializer.append_pair(name, value.expose_secret());
        }
        serializer.finish().into()
    }

    pub(crate) fn hide_in(&self, redaction: &mut Redaction) {
        for secret in &self.secrets {
            redaction.secret(secret.expose_secret());
        }
    }
}

/// Escapes what would end a path segment or be misread. MAAS expects the slash of a CIDR unescaped
/// (`subnets/10.0.0.0/24/`), so callers pass a CIDR as two arguments.
fn push_escaped(path: &mut String, segment: &str) {
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*,;=".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push('%');
            for digit in [byte >> 4, byte & 15] {
                path.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_gives_the_path_and_the_operation() {
        let call = Call::post("machines.deploy", "machines/{system_id}/?op=deploy", &["abc123"]).unwrap();
        assert_eq!((call.path(), call.encoded_query().as_str()), ("machines/abc123/", "op=deploy"));
        let call = Call::get("x", "fabrics/{id}/vlans/{vid}/", &["1", "42"]).unwrap();
        assert_eq!((call.path(), call.encoded_query().as_str()), ("fabrics/1/vlans/42/", ""));
    }

    #[test]
    fn an_argument_cannot_leave_its_place() {
        for (argument, path) in [
            ("a/b", "tags/a%2Fb/"),
            ("a?op=x", "tags/a%3Fop=x/"),
            ("a#b", "tags/a%23b/"),
            ("ä", "tags/%C3%A4/"),
            ("a b", "tags/a%20b/"),
            ("%2e", "tags/%252e/"),
        ] {
            assert_eq!(Call::get("x", "tags/{name}/", &[argument]).unwrap().path(), path);
        }
    }

    #[test]
    fn an_argument_that_names_nothing_is_refused_before_anything_is_sent() {
        for argument in ["", ".", ".."] {
            let error = Call::delete("machines.delete", "machines/{system_id}/", &[argument]).err().unwrap();
            assert!(error.to_string().contains("names nothing"), "{error}");
        }
    }

    #[test]
    fn lists_repeat_their_key_and_the_rest_is_escaped() {
        let call =
            Call::post("x", "tags/", &[]).unwrap().fields("add", ["a", "b&c"]).flag("no", false).flag("yes", true);
        assert_eq!(call.body(), "add=a&add=b%26c&yes=true");
    }
}
