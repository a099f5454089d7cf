//! MAAS's refusals. They differ not only in their messages, but also in content type and headers.

/// Messages by field, in the order of the form.
pub type FieldErrors = Vec<(String, Vec<String>)>;

/// An answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 404 of a look-up: "No Zone matches the given query."
    NotFound(&'static str),
    /// 403 without a message.
    Forbidden,
    /// A message in plain text.
    Text {
        status: u16,
        /// The message.
        body: String,
        /// `Retry-After`, in seconds.
        retry_after: Option<u32>,
        /// Answers that are sent after the transaction have no `Vary` header.
        late: bool,
    },
    /// A message in plain text as the handler itself answers it, with the headers of a success.
    Handler {
        status: u16,
        /// The message.
        body: String,
    },
    /// 400 of a form: messages by field.
    Form(FieldErrors),
    /// 400 of a rule behind the form: the same body with another content type.
    Validation(FieldErrors),
}

impl Refusal {
    /// A message in plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Refusal::Text { status, body: body.into(), retry_after: None, late: false }
    }

    /// 400 in plain text.
    pub fn bad_request(body: impl Into<String>) -> Self {
        Self::text(400, body)
    }

    /// 409 in plain text.
    pub fn conflict(body: impl Into<String>) -> Self {
        Self::text(409, body)
    }

    /// 500, the text of an exception.
    pub fn crash(body: impl Into<String>) -> Self {
        Self::text(500, body)
    }

    /// 503 in plain text.
    pub fn unavailable(body: impl Into<String>) -> Self {
        Self::text(503, body)
    }

    /// 403 for what only administrators may do.
    pub fn admins_only() -> Self {
        Self::text(403, "This method is reserved for admin users.")
    }

    /// 400 with one message for one field.
    pub fn field(name: &str, message: impl Into<String>) -> Self {
        Refusal::Form(vec![(name.to_owned(), vec![message.into()])])
    }

    /// 400 for a field that is missing.
    pub fn required(name: &str) -> Self {
        Self::field(name, "This field is required.")
    }

    /// 400 of a form for something that the state of the machine does not allow.
    pub fn not_in_this_state(what: &str) -> Self {
        Self::field("__all__", format!("{what} is not available because of the current state of the node."))
    }

    /// 409 for a status transition that MAAS does not allow.
    pub fn invalid_transition(from: &str, to: &str) -> Self {
        Self::conflict(format!("Invalid transition: {from} -> {to}."))
    }

    /// 400 with one message for one field, from a rule behind the form.
    pub fn validation(name: &str, message: impl Into<String>) -> Self {
        Refusal::Validation(vec![(name.to_owned(), vec![message.into()])])
    }

    /// Adds `Retry-After`.
    #[must_use]
    pub fn retry_after(self, after: u32) -> Self {
        match self {
            Refusal::Text { status, body, late, .. } => Refusal::Text { status, body, retry_after: Some(after), late },
            other => other,
        }
    }

    /// Marks an answer that is sent after the transaction.
    #[must_use]
    pub fn late(self) -> Self {
        match self {
            Refusal::Text { status, body, retry_after, .. } => Refusal::Text { status, body, retry_after, late: true },
            other => other,
        }
    }
}

/// Collects the errors of a form.
#[derive(Debug, Default)]
pub struct FormCheck(FieldErrors);

impl FormCheck {
    /// Adds a message to a field.
    pub fn add(&mut self, field: &str, message: impl Into<String>) {
        match self.0.iter_mut().find(|(name, _)| name == field) {
            Some((_, messages)) => messages.push(message.into()),
            None => self.0.push((field.to_owned(), vec![message.into()])),
        }
    }

    /// Adds the message of a missing field unless there is a value.
    pub fn require<'a>(&mut self, field: &str, value: Option<&'a str>) -> Option<&'a str> {
        match value {
            Some(value) if !value.is_empty() => Some(value),
            _ => {
                self.add(field, "This field is required.");
                None
            }
        }
    }

    /// An integer; otherwise adds the message of an invalid one.
    pub fn whole_number(&mut self, field: &str, value: Option<&str>) -> Option<i64> {
        let parsed = value?.trim().parse().ok();
        if parsed.is_none() {
            self.add(field, "Enter a whole number.");
        }
        parsed
    }

    /// An integer of at least `least`.
    pub fn at_least(&mut self, field: &str, value: Option<&str>, least: i64) -> Option<i64> {
        let number = self.whole_number(field, value)?;
        if number < least {
            self.add(field, format!("Ensure this value is greater than or equal to {least}."));
        }
        Some(number)
    }

    /// Adds the message that lists all choices unless the value is one of them.
    pub fn choice(&mut self, field: &str, value: &str, choices: &[&str]) {
        if !choices.contains(&value) {
            let quoted: Vec<String> = choices.iter().map(|name| format!("'{name}'")).collect();
            let words = format!("'{value}' is not a valid {field}.  It should be one of: {}.", quoted.join(", "));
            self.add(field, words);
        }
    }

    /// Whether a field has a message.
    pub fn is_wrong(&self, field: &str) -> bool {
        self.0.iter().any(|(name, _)| name == field)
    }

    pub fn is_fine(&self) -> bool {
        self.0.is_empty()
    }

    /// A refusal if anything was added.
    pub fn done(self) -> Result<(), Refusal> {
        if self.0.is_empty() { Ok(()) } else { Err(Refusal::Form(self.0)) }
    }
}
