echo x | read v1; echo "${v1-unset}"
