//! Users and their own keys.

use serde_json::{Value, json};

use super::{
    super::{
        Call,
        forms::is_true,
        render,
        reply::Reply,
        surface::{AccountAction, Kept, UsersAction},
    },
    list,
};
use crate::model::{Model, Outcome, Refusal};

pub(crate) fn users(model: &mut Model, call: &Call, action: UsersAction) -> Outcome<Reply> {
    match action {
        UsersAction::Read => {
            let mut users: Vec<_> = model.db.users.values().collect();
            users.sort_by(|a, b| a.name.cmp(&b.name));
            list(users.into_iter().map(render::user).collect())
        }
        UsersAction::Whoami => Ok(Reply::json(&render::user_by_id(model, Some(call.user)))),
        UsersAction::Create => {
            call.require_admin()?;
            let form = &call.body;
            let admin = form.get("is_superuser").is_some_and(is_true);
            if !form.has("is_superuser") {
                return Err(Refusal::bad_request("No provided is_superuser!"));
            }
            let id = model.create_user(form.get("username"), form.get("email"), form.get("password"), admin)?;
            Ok(Reply::json(&render::user_by_id(model, Some(id))))
        }
    }
}

pub(crate) fn user(model: &mut Model, call: &Call, action: Kept) -> Outcome<Reply> {
    match action {
        Kept::Read => {
            let user = model.user_by_name(call.parameter(0)).ok_or(Refusal::NotFound("User"))?;
            Ok(Reply::json(&render::user(user)))
        }
        Kept::Delete => {
            call.require_admin()?;
            model.delete_user(call.parameter(0), call.user)?;
            Ok(Reply::deleted())
        }
    }
}

pub(crate) fn account(model: &mut Model, call: &Call, action: AccountAction) -> Outcome<Reply> {
    let form = call.data();
    match action {
        AccountAction::ListTokens => {
            let keys = model
                .db
                .users
                .get(&call.user)
                .map_or_else(Vec::new, |user| user.keys.iter().map(render::key).collect());
            list(keys)
        }
        AccountAction::CreateToken => {
            let key = model.create_key(call.user, form.get("name"))?;
            Ok(Reply::json(&json!({
                "consumer_key": key.key.consumer, "name": key.name, "token_key": key.key.token,
                "token_secret": key.key.secret,
            })))
        }
        AccountAction::DeleteToken => {
            let Some(token) = form.get("token_key").filter(|token| !token.is_empty()) else {
                return Err(Refusal::bad_request("No provided token_key!"));
            };
            model.delete_key(call.user, token)?;
            Ok(Reply::deleted())
        }
        AccountAction::UpdateTokenName => {
            let (Some(token), Some(name)) = (form.get("token"), form.get("name")) else {
                return Err(Refusal::bad_request("No provided token!"));
            };
            let (token, name) = (token.rsplit(':').nth(1).unwrap_or(token).to_owned(), name.to_owned());
            let user = model.db.users.get_mut(&call.user).ok_or(Refusal::NotFound("User"))?;
            let key = user.keys.iter_mut().find(|key| key.key.token == token).ok_or(Refusal::NotFound("Token"))?;
            key.name = name;
            Ok(Reply::json(&Value::from("Accepted")))
        }
    }
}
