//! The MAAS client.
