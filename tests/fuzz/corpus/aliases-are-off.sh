alias ll='echo aliased'
ll
