"""The certificates between controllers and the etcd that the operator runs."""
