//! Users and their own keys.

use serde_json::json;

use super::{
    super::{
        Call, render,
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
            let (name, email) = (form.mandatory("username")?, form.mandatory("email")?);
            form.mandatory("password")?;
            let admin = match form.mandatory("is_superuser")? {
                "0" => false,
                "1" => true,
                other => {
                    return Err(Refusal::crash(format!("Not a valid Boolean value (0 or 1): '{other}'")));
                }
            };
            let id = model.create_user(name, email, admin)?;
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
            model.delete_user(call.parameter(0), call.user, call.query.get("transfer_resources_to"))?;
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
            model.delete_key(call.user, form.mandatory("token_key")?)?;
            Ok(Reply::deleted())
        }
        AccountAction::UpdateTokenName => {
            // The whole key, or only its token. From MAAS's source, not recorded, as is the answer.
            let (whole, name) = (form.mandatory("token")?, form.mandatory("name")?.to_owned());
            let token = match whole.split(':').collect::<Vec<_>>().as_slice() {
                [_, token, _] => (*token).to_owned(),
                _ => whole.to_owned(),
            };
            let user = model.db.users.get_mut(&call.user).ok_or(Refusal::NotFound("User"))?;
            let key = user.keys.iter_mut().find(|key| key.key.token == token).ok_or(Refusal::NotFound("Token"))?;
            key.name = name;
            Ok(Reply::handler(202, "Accepted"))
        }
    }
}
