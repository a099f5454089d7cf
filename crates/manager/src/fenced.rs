//! A client of the API server that writes only while this manager leads (S23).
//!
//! Reconcilers check the fence before they change MAAS; here it is checked for every write to Kubernetes, whichever
//! component makes it, at the last moment before it is sent.

use std::task::{Context, Poll};

use futures::future::{Either, MapErr, Ready, TryFutureExt as _, ready};
use kube::client::Body;
use kube::{Client, Config};
use tower::{BoxError, Layer, Service};

use crate::answering;
use crate::lease::Fence;

/// A client that checks `fence` before every write.
pub fn client(config: Config, fence: Fence) -> Result<Client, kube::Error> {
    let following = answering::following(&config, "management");
    Ok(kube::client::ClientBuilder::try_from(config)?.with_layer(&following).with_layer(&Fencing(fence)).build())
}

#[derive(Clone)]
struct Fencing(Fence);

impl<S> Layer<S> for Fencing {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { inner, fence: self.0.clone() }
    }
}

#[derive(Clone)]
struct Fenced<S> {
    inner: S,
    fence: Fence,
}

type Sent<F, E> = MapErr<F, fn(E) -> BoxError>;

impl<S> Service<http::Request<Body>> for Fenced<S>
where
    S: Service<http::Request<Body>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<Ready<Result<S::Response, BoxError>>, Sent<S::Future, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if !request.method().is_safe()
            && let Err(not_leader) = self.fence.check()
        {
            return Either::Left(ready(Err(not_leader.into())));
        }
        Either::Right(self.inner.call(request).map_err(Into::into as fn(S::Error) -> BoxError))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capmaas_core::lease::Timing;
    use tower::ServiceExt as _;

    #[tokio::test]
    async fn s23_reads_pass_and_writes_do_not_unless_we_lead() {
        let inner = tower::service_fn(|_: http::Request<Body>| async { Ok::<_, BoxError>("sent") });
        let send = async |fence: Fence, method: &str| {
            let request = http::Request::builder().method(method).body(Body::empty()).unwrap();
            Fencing(fence).layer(inner).oneshot(request).await
        };
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(send(Fence::open(), method).await.unwrap(), "sent", "{method}");
            let closed = send(Fence::closed(Timing::default()), method).await;
            assert_eq!(closed.is_ok(), method == "GET", "{method}");
        }
    }
}
