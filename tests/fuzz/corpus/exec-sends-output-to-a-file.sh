echo shown
exec >f5
echo hidden
