//! Users and their keys.

use super::{
    Model, Outcome, Refusal,
    db::{Table, User, UserKey},
    refusal::FormCheck,
};
use crate::config::ApiKey;
use crate::ledger::{Effect, ObjectChange, ObjectKind};

impl Model {
    pub fn user_by_name(&self, name: &str) -> Option<&User> {
        self.db.users.values().find(|user| user.name == name)
    }

    /// The user and the key of a consumer and token, if they belong together.
    pub fn find_key(&self, consumer: &str, token: &str) -> Option<(&User, &UserKey)> {
        self.db.users.values().find_map(|user| {
            user.keys.iter().find(|key| key.key.consumer == consumer && key.key.token == token).map(|key| (user, key))
        })
    }

    /// Whether any key has this consumer.
    pub fn knows_consumer(&self, consumer: &str) -> bool {
        self.db.users.values().any(|user| user.keys.iter().any(|key| key.key.consumer == consumer))
    }

    /// `POST users/`.
    pub fn create_user(&mut self, name: &str, email: &str, admin: bool) -> Outcome<i64> {
        if self.user_by_name(name).is_some() {
            let mut check = FormCheck::default();
            check.add("username", "A user with that username already exists.");
            check.done()?;
        }
        let id = self.db.sequences.take(Table::User);
        let user = User { id, name: name.to_owned(), email: email.to_owned(), admin, local: true, keys: Vec::new() };
        self.db.users.insert(id, user);
        self.effect(Effect::object(ObjectKind::User, name, ObjectChange::Created));
        Ok(id)
    }

    /// `DELETE users/{name}/`. Deleting a user that does not exist succeeds, and an heir may take over its objects;
    /// from MAAS's source, not recorded.
    pub fn delete_user(&mut self, name: &str, by: i64, heir: Option<&str>) -> Outcome<()> {
        let Some(id) = self.user_by_name(name).map(|user| user.id) else { return Ok(()) };
        if id == by {
            return Err(Refusal::bad_request("An administrator cannot self-delete."));
        }
        if let Some(heir) = heir.filter(|heir| !heir.is_empty()) {
            let heir = self.user_by_name(heir).map(|user| user.id).ok_or(Refusal::NotFound("User"))?;
            for machine in self.db.machines.values_mut().filter(|machine| machine.owner == Some(id)) {
                machine.owner = Some(heir);
            }
            for row in self.db.addresses.values_mut().filter(|row| row.user == Some(id)) {
                row.user = Some(heir);
            }
        }
        let owned = self.db.machines.values().filter(|machine| machine.owner == Some(id)).count();
        if owned > 0 {
            return Err(Refusal::bad_request(format!(
                "User {name} cannot be deleted: {owned} node(s) are still allocated"
            )));
        }
        let addresses = self.db.addresses.values().filter(|row| row.user == Some(id)).count();
        if addresses > 0 {
            return Err(Refusal::bad_request(format!(
                "User {name} cannot be deleted: {addresses} static IP address(es) are still allocated"
            )));
        }
        self.db.users.remove(&id);
        Ok(())
    }

    /// `account op=create_authorisation_token`.
    pub fn create_key(&mut self, user: i64, name: Option<&str>) -> Outcome<UserKey> {
        let key = ApiKey { consumer: self.rng.hex(18), token: self.rng.hex(18), secret: self.rng.hex(32) };
        let key = UserKey { name: name.unwrap_or("MAAS consumer").to_owned(), key };
        self.db.users.get_mut(&user).ok_or(Refusal::NotFound("User"))?.keys.push(key.clone());
        Ok(key)
    }

    /// `account op=delete_authorisation_token`.
    pub fn delete_key(&mut self, user: i64, token: &str) -> Outcome<()> {
        let user = self.db.users.get_mut(&user).ok_or(Refusal::NotFound("User"))?;
        let before = user.keys.len();
        user.keys.retain(|key| key.key.token != token);
        if user.keys.len() == before { Err(Refusal::NotFound("Token")) } else { Ok(()) }
    }
}
